#!/usr/bin/env bash
# In which type polars adds 8-bit integers.
# guess: in 64 bits, as its sum does, and a mean in floats: of 100 and 100 in a row the mean is 100, the dot product 20000.
# seen:  in polars 2.1.0 sum, mean, cum_sum, list.sum and rolling_sum do so. sum_horizontal, mean_horizontal and dot wrap in 8 bits: a
#        row of 100 and 100 has the sum -56 and the mean -28.0, and the dot product of [100, 100] with itself is 32.
. "$(dirname "$0")/common.sh"
with_packages polars==2.1.0 <<'END'
import polars as pl

def seen(kind):
    frame = pl.DataFrame({"a": [100, 100], "b": [100, 100]}, schema={"a": kind, "b": kind})
    found = frame.select(sum=pl.col("a").sum(), mean=pl.col("a").mean(), cum_sum=pl.col("a").cum_sum().last(),
                         list_sum=pl.concat_list("a", "b").list.sum().last(),
                         rolling_sum=pl.col("a").rolling_sum(2).last(), sum_horizontal=pl.sum_horizontal("a", "b").last(),
                         mean_horizontal=pl.mean_horizontal("a", "b").last(), dot=pl.col("a").dot("b")).row(0, named=True)
    print(f"{kind}: {found}")
    return list(found.values())

right = [200, 100, 200, 200, 200, 200, 100, 20000]
raise SystemExit(not (seen(pl.Int64) == right and seen(pl.Int8) == right[:5] + [-56, -28, 32]))
END
