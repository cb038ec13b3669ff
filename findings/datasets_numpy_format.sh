#!/usr/bin/env bash
# In which type the "numpy" format of datasets gives a column, and what a map writes that gives a column back.
# guess: the column's own, since NumPy has it: float64 stays float64, int8 stays int8.
# seen:  in datasets 5.2.0 only one row's number has it. Lists, slices and batches are float32 and int64, as its documentation now has
#        it: 1700000000.5 becomes 1700000000. A batched map that returns what it gets writes those numbers into the float64 column;
#        row by row, or with dtype=None, it does not.
. "$(dirname "$0")/common.sh"
with_packages datasets==5.2.0 numpy==2.4.6 <<'END'
import datasets
import numpy as np

datasets.disable_progress_bars()
numbers = [0.1, 1700000000.5]
rows = datasets.Dataset.from_dict({"t": numbers}).with_format("numpy")
codes = datasets.Dataset.from_dict({"c": [np.array([1, 2], np.int8)]})
one, some = rows[0]["t"], rows[:]["t"]
listed = codes.with_format("numpy")[0]["c"].dtype
print(f"one row {one!r}, all rows {some.dtype} {some.tolist()}; a list of {codes.features['c']} {listed}")
written = {}
exact = rows.with_format("numpy", dtype=None)
for name, view, batched in (("batched", rows, True), ("row by row", rows, False), ("dtype=None", exact, True)):
    mapped = view.map(lambda got: {"t": got["t"]}, batched=batched).with_format(None)
    written[name] = mapped[:]["t"]
    print(f"after a map, {name}: {mapped.features['t']} {written[name]}")
ok = one == 0.1 and one.dtype == np.float64 and some.dtype == np.float32 and listed == np.int64
ok &= written["batched"] == [float(np.float32(0.1)), 1700000000.0] and written["row by row"] == written["dtype=None"] == numbers
raise SystemExit(not ok)
END
