#!/usr/bin/env bash
# Small numbers in the storage type E4M3 of Voyager, an index of nearest neighbours.
# guess: those of float8_e4m3fn: multiples of 2^-9 up to 2^-6, each number rounded to the nearest.
# seen:  voyager 2.2.3 has multiples of 2^-10 up to 7 * 2^-10 and nothing from there to 2^-6 = 16 * 2^-10: subnormals count half.
#        So 0.011 becomes 0.0068, and 0.012 becomes 0.0156. From 2^-6 on all numbers are those of ml_dtypes 0.6.0.
. "$(dirname "$0")/common.sh"
with_packages voyager==2.2.3 ml_dtypes==0.6.0 numpy==2.4.6 <<'END'
import ml_dtypes
import numpy as np
import voyager

def stored(numbers):
    index = voyager.Index(voyager.Space.Euclidean, 1, storage_data_type=voyager.StorageDataType.E4M3)
    return np.array([index.get_vector(i)[0] for i in index.add_items(numbers[:, None].astype(np.float32))])

def nearest(numbers):
    return numbers.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)

small = np.arange(0, 2 ** -6 + 2 ** -17, 2 ** -16, dtype=np.float32)
values, usual = (np.unique(v).astype(np.float64) * 2 ** 10 for v in (stored(small), nearest(small)))
print("in units of 2^-10, up to 2^-6: voyager", *map(int, values), "; float8_e4m3fn", *map(int, usual))
some = np.array([0.003, 0.011, 0.012], np.float32)
print("0.003, 0.011, 0.012: voyager", *stored(some), "; float8_e4m3fn", *nearest(some))
large = np.linspace(2 ** -6, 448, 20001, dtype=np.float32)
n_other = int((stored(large) != nearest(large)).sum())
print("of", len(large), "numbers from 2^-6 to 448 other than float8_e4m3fn:", n_other)
seen = list(values) == [*range(8), 16] and list(usual) == list(range(0, 17, 2)) and n_other == 0
seen &= list(stored(some)) == [3 / 1024, 7 / 1024, 1 / 64] and list(nearest(some)) == [2 / 512, 6 / 512, 6 / 512]
raise SystemExit(not seen)
END
