from typing import List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

__version__: str

class DeviceError(RuntimeError): ...

class Matcher:
    def __init__(
        self,
        templates: Sequence[Tuple[str, npt.NDArray[np.uint8], Optional[npt.NDArray[np.uint8]]]],
        limits: Tuple[float, int, float],
        scales: Optional[str],
        angles: Optional[str],
        roi: Optional[Tuple[int, int, int, int]],
        search: str,
        device: str,
        threads: Optional[int],
    ) -> None: ...
    def find(
        self, scene: npt.NDArray[np.uint8]
    ) -> List[Tuple[str, int, int, int, int, float, float, float, float, float]]: ...
    def device(self) -> Optional[str]: ...

class Thresholder:
    def __init__(self, spec: str, device: str, threads: Optional[int]) -> None: ...
    def run(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]: ...

class Tracker:
    def __init__(self, rect: Tuple[int, int, int, int]) -> None: ...
    def update(
        self, frame: npt.NDArray[np.uint8], pts_ns: Optional[int]
    ) -> Optional[Tuple[str, float, float, float, float, float, float]]: ...
    def correct(self, rect: Tuple[int, int, int, int]) -> None: ...

def score_map(
    scene: npt.NDArray[np.uint8],
    template: npt.NDArray[np.uint8],
    mask: Optional[npt.NDArray[np.uint8]],
    threads: Optional[int],
) -> npt.NDArray[np.float64]: ...
def devices() -> Tuple[List[Tuple[str, str, int, Optional[str]]], Optional[str]]: ...
