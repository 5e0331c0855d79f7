#!/usr/bin/env python3
"""Prints what Python's safetensors package reads from a file of ours. Needs numpy and safetensors.

Usage: python3 tests/nn/check_safetensors.py FILE
"""

import sys

from safetensors import safe_open


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with safe_open(sys.argv[1], framework="numpy") as file:
        print("metadata", file.metadata())
        for name in file.keys():
            tensor = file.get_tensor(name)
            print(name, tensor.dtype, list(tensor.shape), "sum", tensor.sum(dtype="float64"))


if __name__ == "__main__":
    main()
