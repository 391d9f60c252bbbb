#!/usr/bin/env bash
# Compiles kernels/*.cu to crates/lockon-cuda/ptx/*.ptx, and the kernels of crates/lockon-bench to its folder ptx. PTX is committed:
# building lockon needs no CUDA.
#
#   scripts/compile-kernels.sh [--check]     (--check compares with what is committed and writes nothing)
#
# The compiler is NVRTC of one version, a Python wheel that is kept under target/. A .cu file is compiled for compute
# capability 7.5, or for what a line `// target: compute_90a` in it says; of several targets with commas between them, the
# others make files of their own, NAME_90.ptx for compute_90. PTX of ISA 8.1 runs on driver 530 and newer.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
for argument; do
  case $argument in
    --check) check=yes ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
    *) echo "scripts/compile-kernels.sh: unknown argument $argument (see --help)" >&2; exit 2 ;;
  esac
done

[ "$(uname -sm)" = 'Linux x86_64' ] || {
  echo "scripts/compile-kernels.sh: NVRTC is used on 64-bit x86 Linux only; this is $(uname -sm)" >&2
  exit 1
}
compiler=$(scripts/fetch-wheel nvidia-cuda-nvrtc-cu12 12.1.105 \
  339b385f50c309763ca65456ec75e17bbefcbbf2893f462cb8b90584cd27a1c2)

python3 - "$compiler" "${check:-}" <<'PYTHON'
import ctypes
import pathlib
import re
import sys

# Where the PTX of a folder's kernels is: in the crate that loads it.
FOLDERS = {
    "kernels": pathlib.Path("crates/lockon-cuda/ptx"),
    "crates/lockon-bench/kernels": pathlib.Path("crates/lockon-bench/ptx"),
}
folder, check = pathlib.Path(sys.argv[1]), bool(sys.argv[2])
library = folder / "nvidia/cuda_nvrtc/lib"
# NVRTC looks for its builtins beside the libraries that are loaded already.
ctypes.CDLL(str(next(library.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(str(library / "libnvrtc.so.12"))
nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p


def call(name, *arguments):
    code = getattr(nvrtc, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {nvrtc.nvrtcGetErrorString(code).decode()}")


def text(program, what):
    size = ctypes.c_size_t()
    call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(f"nvrtcGet{what}", program, buffer)
    return buffer.value.decode()


def targets(source):
    """The PTX files that a file makes, each with its target."""
    said = re.search(r"^// target: (.+)$", source.read_text(), re.MULTILINE)
    first, *others = said[1].split(", ") if said else ["compute_75"]
    named = {source.stem: first} | {f"{source.stem}_{other.removeprefix('compute_')}": other for other in others}
    return {FOLDERS[str(source.parent)] / (name + ".ptx"): target for name, target in named.items()}


def compile_(source, target):
    code = source.read_text()
    # A multiply and an add stay two roundings, as on the processor; division and square root are correctly rounded.
    options = [
        f"--gpu-architecture={target}",
        "--std=c++17",
        "--fmad=false",
        "--include-path=kernels",
    ]
    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), code.encode(), str(source).encode(), 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    log = text(program, "ProgramLog").strip()
    if log:
        print(log, file=sys.stderr)
    if failed:
        sys.exit(f"scripts/compile-kernels.sh: {source} does not compile")
    return text(program, "PTX")


stale, made = [], set()
sources = sorted(source for folder in FOLDERS for source in pathlib.Path(folder).glob("*.cu"))
for source in sources:
    for committed, target in targets(source).items():
        made.add(committed)
        ptx = compile_(source, target)
        if committed.exists() and committed.read_text() == ptx:
            continue
        stale.append(str(committed))
        if not check:
            committed.write_text(ptx)
            print(f"wrote {committed}")
stray = [str(path) for folder in FOLDERS.values() for path in folder.glob("*.ptx") if path not in made]
if check and stale:
    sys.exit(f"scripts/compile-kernels.sh: not what the sources compile to: {', '.join(stale)}; run it without --check")
if stray:
    sys.exit(f"scripts/compile-kernels.sh: no source for {', '.join(stray)}; delete them")
print(f"{len(sources)} files of kernels, {'as committed' if check else 'compiled'}")
PYTHON
