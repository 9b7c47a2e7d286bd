"""./x bench transfer: tensors between two processes, in tesser and in others."""
