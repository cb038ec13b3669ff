"""Counts of rescales: of a plan, of a run and of its report, the same; two a layer and one for the last norm are measured."""

import json
import re

LAYERS = 2
RUN = """
model: {{kind: gpt2, hidden: 32, layers: {layers}, heads: 2, ffn: 64, vocab: 256, seq: 32}}
recipe: {recipe}
data: {{train: [{text}]}}
train: {{steps: 1, batch: 2, save_every: 0, tensorboard: false}}
out: {out}
"""


def test_plan_run_and_report_count_the_same_rescales(program, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(range(32, 127)) * 40)
    files = {}
    for name, recipe in (("scaled", "{base: scalify_fp16, rescale: norms}"), ("bf16", "bf16")):
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(RUN.format(layers=LAYERS, recipe=recipe, text=text, out=tmp_path / name))
        program("train", files[name], "--quiet")
    planned = json.loads(program("plan", files["scaled"], "--json"))["rescales"]
    assert planned["measured"] == 2 * LAYERS + 1 and min(planned[name] for name in ("at_run_time", "constant")) > 0
    assert json.loads((tmp_path / "scaled" / "plan.json").read_text()) == {"rescales": planned}
    assert not (tmp_path / "bf16" / "plan.json").exists()
    page = tmp_path / "page.html"
    rows = json.loads(program("report", tmp_path / "scaled", tmp_path / "bf16", "--out", page, "--json"))
    for name, count in planned.items():
        assert [str(row[f"{name}_rescales"] or "") for row in rows] == [str(count), ""], name
    counts = re.search(r'"rescales":(\{[^}]*\})', page.read_text())
    assert json.loads(counts.group(1)) == planned
    alone = json.loads(program("report", tmp_path / "bf16", "--out", page, "--json"))
    assert "measured_rescales" not in alone[0]


def test_a_plan_of_several_ranks_says_what_gradients_are_until_they_are_added(program, tmp_path):
    file = tmp_path / "run.yaml"
    recipe = "{base: scalify_fp16, scaled_gradient: fp16}"
    file.write_text(RUN.format(layers=1, recipe=recipe, text="none.txt", out=tmp_path / "run"))
    words = b"rounded to fp16 (recipe.scaled_gradient), but f32 until 2 ranks add them"
    assert words in program("plan", file, "--ranks", "2") and words not in program("plan", file)
