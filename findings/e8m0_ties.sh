#!/usr/bin/env bash
# How numbers half way between two powers of two become E8M0, the scale of the MX formats.
# guess: both packages round ties to the even code: 1.5, 3, 6, 12 become 2, 2, 8, 8 (codes 128, 128, 130, 130).
# seen:  gfloat 0.5.2 does so; ml_dtypes 0.6.0 rounds all four up, to 2, 4, 8, 16, although it rounds ties of its other
#        8-bit types to even.
. "$(dirname "$0")/common.sh"
with_packages ml_dtypes==0.6.0 gfloat==0.5.2 numpy==2.4.6 <<'END'
import gfloat
import ml_dtypes
import numpy as np
from gfloat.formats import format_info_ocp_e8m0

ties = [1.5, 3.0, 6.0, 12.0]
one = np.array(ties, np.float32).astype(ml_dtypes.float8_e8m0fnu).astype(np.float32).tolist()
other = [float(gfloat.round_float(format_info_ocp_e8m0, x)) for x in ties]
even = np.array([17.0, 19.0], np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32).tolist()
print("of", ties, "ml_dtypes makes", one, "and gfloat", other)
print("ml_dtypes' float8_e4m3fn of 17 and 19, two ties:", even)
raise SystemExit(not (one == [2, 4, 8, 16] and other == [2, 2, 8, 8] and even == [16, 20]))
END
