#!/usr/bin/env python3
"""Writes tests/fixtures/images: small PNG and JPEG files, and expected.json, what Pillow (13.0 made it) makes of them.

expected.json: {"decoded": {file: picture}, "resized": [{"of": file, "filter": name, ...picture}], "luma": {file: picture}},
picture = {"shape": [C, H, W], "pixels": hex}. processed.json: [{"of": file, "config": what preprocessor_config.json says,
...picture}], what image processors of transformers 5.24 make of them with Pillow before they normalize. Needs Pillow, numpy
and transformers.
"""
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import transformers
from PIL import Image

HERE = Path(__file__).resolve().parent.parent / "tests/fixtures/images"
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels


def drawing(height, width, channels, seed):
    """A smooth picture with some noise, so that JPEG keeps something and filters differ."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (3 + c) + seed) * np.cos(y / (4 - c) + c) for c in range(channels)]
    noisy = np.stack(planes, -1) + rng.normal(0, 12, (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels, depth=8, interlaced=False):
    """What Pillow does not write: 16 bits, Adam7. pixels: [H, W, C] of the depth's type."""
    height, width, channels = pixels.shape
    parts = [pixels[y0::dy, x0::dx] for x0, y0, dx, dy in ADAM7] if interlaced else [pixels]
    rows = b"".join(b"\0" + row.astype(f">u{depth // 8}").tobytes() for part in parts if part.size for row in part)
    header = struct.pack(">IIBBBBB", width, height, depth, COLOR_TYPES[channels], 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_files():
    rgb = Image.fromarray(drawing(11, 14, 3, 1))
    alpha = Image.fromarray(drawing(11, 14, 1, 2)[:, :, 0])
    gray = Image.fromarray(drawing(9, 13, 1, 3)[:, :, 0])
    with_alpha = rgb.copy()
    with_alpha.putalpha(alpha)
    rgb.save(HERE / "rgb.png")
    with_alpha.save(HERE / "rgba.png")
    gray.save(HERE / "gray.png")
    gray.convert("LA").save(HERE / "gray_alpha.png")
    gray.convert("1").save(HERE / "one_bit.png")
    rgb.quantize(7).save(HERE / "palette.png", bits=4)
    rgb.quantize(40).save(HERE / "palette_alpha.png", transparency=3)
    (HERE / "interlaced.png").write_bytes(png(drawing(10, 9, 3, 4), interlaced=True))
    wide = drawing(5, 6, 3, 5).astype(np.uint16) * 256 + drawing(5, 6, 3, 6)
    (HERE / "sixteen_bits.png").write_bytes(png(wide, depth=16))
    large = Image.fromarray(drawing(23, 37, 3, 7))
    large.save(HERE / "halved_color.jpg", quality=80, subsampling="4:2:0")
    large.save(HERE / "half_color.jpg", quality=85, subsampling="4:2:2")
    large.save(HERE / "full_color.jpeg", quality=95, subsampling="4:4:4")
    large.save(HERE / "progressive.jpg", quality=70, progressive=True)
    large.convert("L").save(HERE / "gray.jpg", quality=75)
    large.convert("CMYK").save(HERE / "inks.jpg", quality=90)


def picture(image):
    pixels = np.asarray(image)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return {"shape": list(pixels.shape), "pixels": np.ascontiguousarray(pixels).tobytes().hex()}


def opened(path):
    image = Image.open(path)
    return image.convert("L" if image.mode in ("L", "LA", "1") else "RGB")


def processed():
    """Sides whose difference from the crop's is 1, 2 and 3 more than a multiple of 4, of both shapes."""
    crop = {"do_center_crop": True, "crop_size": {"height": 8, "width": 8}}
    cases = [("CLIPImageProcessor", {"size": {"shortest_edge": 9}, "resample": 3, **crop}),
             ("CLIPImageProcessor", {"size": 11, "resample": 2, **crop}),
             ("CLIPImageProcessor", {"size": {"shortest_edge": 8}, "resample": 3, **crop}),
             ("DeiTImageProcessor", {"size": {"height": 11, "width": 11}, "resample": 3, **crop}),
             ("DeiTImageProcessor", {"size": 10, "resample": 3, **crop}),
             ("ViTImageProcessor", {"size": 8, "resample": 2}),
             ("ViTImageProcessor", {"size": {"height": 8, "width": 8}, "resample": 3}),
             ("ConvNextImageProcessor", {"size": {"shortest_edge": 8}}),
             ("ConvNextImageProcessor", {"size": 8, "crop_pct": 0.7, "resample": 2})]
    results = []
    for name, config in cases:
        own = getattr(transformers, name + "Pil")(do_rescale=False, do_normalize=False, **config)
        for of in ("rgb.png", "halved_color.jpg", "interlaced.png"):
            pixels = own(opened(HERE / of), return_tensors="np")["pixel_values"][0]
            results.append({"of": of, "config": {"image_processor_type": name, **config}, "shape": list(pixels.shape),
                            "pixels": pixels.astype(np.uint8).tobytes().hex()})
    return results


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    write_files()
    files = sorted(path for path in HERE.iterdir() if path.suffix in (".png", ".jpg", ".jpeg"))
    sizes = [("rgb.png", 5, 7), ("rgb.png", 29, 31), ("rgb.png", 11, 4), ("rgb.png", 1, 14), ("gray.png", 32, 3),
             ("halved_color.jpg", 8, 8), ("halved_color.jpg", 224, 22)]
    resized = [{"of": name, "filter": filter_.name.lower(), **picture(opened(HERE / name).resize((width, height), filter_))}
               for filter_ in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC) for name, height, width in sizes]
    luma = {name: picture(opened(HERE / name).convert("L")) for name in ("rgb.png", "halved_color.jpg")}
    expected = {"decoded": {path.name: picture(opened(path)) for path in files}, "resized": resized, "luma": luma}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (HERE / "processed.json").write_text(json.dumps(processed(), indent=1) + "\n")


if __name__ == "__main__":
    main()
