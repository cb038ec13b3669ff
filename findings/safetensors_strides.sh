#!/usr/bin/env bash
# What safetensors.numpy saves of an array whose rows are not one behind the other: a transpose, a column, Fortran's order.
# guess: its numbers are kept: it is copied into C's order first, as numpy.save and tobytes do.
# seen:  safetensors 0.8.0 writes the bytes as they lie in memory under the array's shape, without a word: the numbers come
#        back in another order, and of a column the first row's neighbours come back.
. "$(dirname "$0")/common.sh"
with_packages safetensors==0.8.0 numpy==2.4.6 <<'END'
import numpy as np
from safetensors.numpy import load, load_file, save, save_file

whole = np.arange(6, dtype=np.float32).reshape(2, 3)

def back(name, array, expected):
    save_file({"a": array}, "a.safetensors")
    read, other = load_file("a.safetensors")["a"], load(save({"a": array}))["a"]
    print(f"{name}: {array.tolist()} comes back as {read.tolist()}")
    return read.shape == array.shape and read.tolist() == other.tolist() == expected

ok = back("in C's order", whole, [[0, 1, 2], [3, 4, 5]])
ok &= back("in Fortran's order", np.asfortranarray(whole), [[0, 3, 1], [4, 2, 5]])
ok &= back("transposed", whole.T, [[0, 1], [2, 3], [4, 5]])
ok &= back("a column", whole[:, 1:2], [[1], [2]])
ok &= back("transposed and copied", np.ascontiguousarray(whole.T), [[0, 3], [1, 4], [2, 5]])
raise SystemExit(not ok)
END
