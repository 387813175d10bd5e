"""Numba kernels: arrays in, arrays out; nothing of kseg but this package is imported here."""
