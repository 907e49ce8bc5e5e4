"""Claims of pods that are placed: allocation and reservation are written before the pods are bound, and taken back."""
