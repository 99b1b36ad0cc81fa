"""A real server for the tests: llama.cpp's own, with a model that is written here and replays given texts."""
