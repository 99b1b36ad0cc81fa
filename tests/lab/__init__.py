"""The lab: a virtual machine with a workstation's topology and a freshly installed Debian, for tests and the demo."""
