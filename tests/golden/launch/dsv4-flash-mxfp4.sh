taskset --cpu-list 40-79 env -i \
  HOME=/var/lib/ktfleet/home \
  LANG=C.UTF-8 \
  PATH=/opt/ktfleet/stack/bin:/usr/local/cuda-12.9/bin:/usr/local/bin:/usr/bin:/bin \
  PYTHONNOUSERSITE=1 \
  PYTHONUNBUFFERED=1 \
  HF_HUB_OFFLINE=1 \
  CUDA_HOME=/usr/local/cuda-12.9 \
  TORCH_CUDA_ARCH_LIST=12.0+PTX \
  FLASHINFER_CUDA_ARCH_LIST=12.0a \
  FLASHINFER_WORKSPACE_BASE=/var/lib/ktfleet/home \
  MAX_JOBS=11 \
  HWLOC_COMPONENTS=-x86 \
  SGLANG_DSV4_MODE=2604 \
  SGLANG_DSV4_2604_SUBMODE=2604B \
  /opt/ktfleet/stack/bin/python -m sglang.launch_server \
  --model-path /srv/models/DeepSeek-V4-Flash/60d8d70770c6776ff598c94bb586a859a38244f1 \
  --served-model-name DeepSeek-V4-Flash \
  --host 127.0.0.1 \
  --port 30000 \
  --kt-weight-path /srv/models/DeepSeek-V4-Flash/60d8d70770c6776ff598c94bb586a859a38244f1 \
  --kt-method MXFP4 \
  --kt-cpuinfer 40 \
  --kt-threadpool-count 2 \
  --kt-numa-nodes 0 1 \
  --kt-num-gpu-experts 0 \
  --context-length 65536 \
  --max-total-tokens 131072 \
  --max-running-requests 4 \
  --chunked-prefill-size 2048 \
  --mem-fraction-static 0.85 \
  --watchdog-timeout 1200 \
  --enable-metrics \
  --preferred-sampling-params '{"temperature": 1.0, "top_p": 1.0}' \
  --tool-call-parser deepseekv4 \
  --reasoning-parser deepseek-v4 \
  --trust-remote-code \
  --disable-shared-experts-fusion \
  --cuda-graph-bs 1 2 4
