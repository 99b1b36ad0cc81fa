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
  MAX_JOBS=22 \
  HWLOC_COMPONENTS=-x86 \
  /opt/ktfleet/stack/bin/python -m sglang.launch_server \
  --model-path /srv/models/Qwen3-30B-A3B \
  --served-model-name Qwen3-30B-A3B \
  --host 127.0.0.1 \
  --port 30000 \
  --kt-weight-path /srv/models/Qwen3-30B-A3B \
  --kt-method BF16 \
  --kt-cpuinfer 40 \
  --kt-threadpool-count 2 \
  --kt-numa-nodes 0 1 \
  --kt-num-gpu-experts 32 \
  --kt-expert-placement-strategy uniform \
  --context-length 32768 \
  --max-total-tokens 65536 \
  --max-running-requests 4 \
  --chunked-prefill-size 4096 \
  --mem-fraction-static 0.85 \
  --watchdog-timeout 1200 \
  --enable-metrics \
  --preferred-sampling-params '{"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}' \
  --tool-call-parser qwen25 \
  --reasoning-parser qwen3 \
  --attention-backend flashinfer \
  --disable-shared-experts-fusion \
  --cuda-graph-bs 1 2 4
