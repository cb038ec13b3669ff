#!/usr/bin/env bash
# In which order Pillow resizes the two axes of a picture; each pass rounds to 8 bits.
# guess: rows (the horizontal pass) first, whatever the shape, as Pillow has done for years; two passes by hand give its bits.
# seen:  in 12.0.0 so. In 13.0.0 the order depends on the sizes: 45 x 70 to 32 x 32 and 20 x 100 to 10 x 50 are resized
#        along columns first, 70 x 45 to 32 x 32 along rows first. Between the two orders a fifth of the values differ, by 1:
#        bilinear pictures of a processor are other ones behind an upgrade.
. "$(dirname "$0")/common.sh"
program=$(cat <<'END'
import sys

import PIL
import numpy
from PIL import Image

random = numpy.random.default_rng(1)
found = {}
for size, to in (((70, 45), (32, 32)), ((45, 70), (32, 32)), ((20, 100), (10, 50))):
    picture = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=numpy.uint8))
    passes = {"rows first": (to[0], size[1]), "columns first": (size[0], to[1])}
    by_hand = {name: numpy.asarray(picture.resize(between, Image.BILINEAR).resize(to, Image.BILINEAR)).astype(int) for name, between in passes.items()}
    whole = numpy.asarray(picture.resize(to, Image.BILINEAR)).astype(int)
    found[size] = [name for name, one in by_hand.items() if (one == whole).all()]
    differ = by_hand["rows first"] != by_hand["columns first"]
    print(f"Pillow {PIL.__version__}, {size[0]} x {size[1]} to {to[0]} x {to[1]}: {', '.join(found[size])}; {differ.mean():.0%} of values differ between the orders")
by_shape = PIL.__version__.startswith("13.")
columns = ["columns first" if by_shape else "rows first"]
sys.exit(not (found[(70, 45)] == ["rows first"] and found[(45, 70)] == found[(20, 100)] == columns))
END
)
status=0
for version in 12.0.0 13.0.0; do
  (with_packages "pillow==$version" numpy==2.4.6 <<<"$program") || status=$?
done
exit "$status"
