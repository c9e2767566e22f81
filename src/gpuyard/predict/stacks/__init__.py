"""What measured figures of several GPUs say about a software stack, and so about other numbers of GPUs."""
