"""The code of docs/guide/python.md, and the example, do what they say."""

import json
import os
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

import lockon
from conftest import noise, write_png

PYTHON = Path(__file__).parent.parent
GUIDE = PYTHON.parent / "docs/guide/python.md"
RECIPES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def write_files(folder, cv2):
    scene = noise((200, 300, 3), 4)
    write_png(folder / "scene.png", scene)
    write_png(folder / "template.png", scene[60:108, 100:170])
    for name in ("templates", "pictures"):
        (folder / name).mkdir()
    write_png(folder / "templates" / "left.png", scene[10:60, 10:60])
    write_png(folder / "templates" / "right.png", scene[60:108, 200:270])
    for index in range(3):
        write_png(folder / "pictures" / f"{index}.png", np.roll(scene, 9 * index, 1))
    video = cv2.VideoWriter(str(folder / "video.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 30, (300, 200))
    assert video.isOpened()
    target = noise((48, 48, 3), 6)
    for index in range(20):
        frame = noise((200, 300, 3), 5) // 2 + 60
        frame[30 + index : 78 + index, 40 + 2 * index : 88 + 2 * index] = target
        video.write(frame)
    video.release()


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_a_recipe_of_the_guide_runs(recipe, tmp_path, monkeypatch, capsys):
    for module in ("cupy", "IPython", "torch"):
        if module in recipe:
            pytest.importorskip(module, reason=f"skipped: {module} is not here")
    if "IPython" in recipe:
        from IPython.core.interactiveshell import InteractiveShell

        # As in a notebook: without a shell there is nothing to show pictures in.
        InteractiveShell.instance()
    if "cupy" in recipe and not lockon.devices():
        pytest.skip("skipped: there is no GPU")
    if "lockon.run(" in recipe:
        if not hasattr(lockon._lockon, "Run"):
            pytest.skip("skipped: this lockon is built without GStreamer")
        write_files(tmp_path, pytest.importorskip("cv2", reason="skipped: OpenCV is not here"))
    elif "cv2" in recipe:
        write_files(tmp_path, pytest.importorskip("cv2", reason="skipped: OpenCV is not here"))
    monkeypatch.chdir(tmp_path)
    if "read_results" in recipe:
        program = os.environ.get("LOCKON_PROGRAM") or shutil.which("lockon")
        if program is None:
            pytest.skip("skipped: the program lockon is not here (LOCKON_PROGRAM names it)")
        write_files(tmp_path, pytest.importorskip("cv2", reason="skipped: OpenCV is not here"))
        recipe = recipe.replace('["lockon", ', f"[{program!r}, ")
    exec(compile(recipe, str(GUIDE), "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    if "tracked.mp4" in recipe:
        assert printed.startswith("300 200 30.0\n0.0 tracked 40.0 30.0\n") and printed.endswith("\n20\n"), printed
        assert len(lockon.read_results("tracks.jsonl")) == 20 and os.path.getsize("tracked.mp4") > 1000
    if "found.png" in recipe:
        assert printed.startswith("1.0 134.9") or printed.startswith("1.0 135.0"), printed
        assert os.path.getsize("found.png") > 1000
    if "found.csv" in recipe:
        rows = Path("found.csv").read_text().splitlines()
        assert rows[0].startswith("picture,template,x,y") and len(rows) >= 1 + 2 + 1
    if "track.state, track.score" in recipe:
        assert printed.startswith("tracked ")
    if "page.png" in recipe:
        assert os.path.getsize("page.png") > 100
    if "detect(frame)" in recipe:
        assert printed.count("Track(state='tracked'") >= 15, printed
    if "lockon.devices()" in recipe:
        assert ("can be used" in printed) or ("None" not in printed)
    if "read_results" in recipe:
        assert printed.count(" tracked ") >= 15, printed
    if "pool.map" in recipe:
        assert int(printed) == 3


def test_the_guide_has_its_recipes():
    assert len(RECIPES) >= 8


def test_the_example_uses_every_function():
    example = PYTHON / "examples/everything.py"
    runpy.run_path(str(example), run_name="__main__")
    text = example.read_text()
    # Names that only annotations and handlers of errors need.
    left_out = {"Box", "Device", "DeviceError", "Devices", "Picture", "Steps", "SupportsCudaArray", "SupportsDLPack"}
    unused = {name for name in lockon.__all__ if not re.search(rf"lockon\.{name}\b", text)}
    assert unused - left_out == set()


def test_the_notebook_runs(monkeypatch, tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="skipped: matplotlib is not here")
    matplotlib.use("agg")
    cells = json.loads((GUIDE.parent / "python.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "python.ipynb", "exec"), names)
    assert len(matplotlib.pyplot.get_fignums()) >= 3
    matplotlib.pyplot.close("all")
