from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

__version__: str

class DeviceError(RuntimeError): ...

class Matcher:
    def __init__(
        self,
        templates: Sequence[Tuple[str, npt.NDArray[Any], Optional[npt.NDArray[Any]]]],
        limits: Tuple[float, int, float],
        scales: Optional[str],
        angles: Optional[str],
        roi: Optional[Tuple[int, int, int, int]],
        search: str,
        device: str,
        threads: Optional[int],
    ) -> None: ...
    def find(
        self, scene: npt.NDArray[Any]
    ) -> List[Tuple[str, int, int, int, int, float, float, float, float, float]]: ...
    def device(self) -> Optional[str]: ...

class Thresholder:
    def __init__(self, spec: str, device: str, threads: Optional[int]) -> None: ...
    def run(self, image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]: ...

class Tracker:
    def __init__(self, rect: Tuple[int, int, int, int]) -> None: ...
    def update(
        self, frame: npt.NDArray[Any], pts_ns: Optional[int]
    ) -> Optional[Tuple[str, float, float, float, float, float, float]]: ...
    def correct(self, rect: Tuple[int, int, int, int]) -> None: ...

def score_map(
    scene: npt.NDArray[Any],
    template: npt.NDArray[Any],
    mask: Optional[npt.NDArray[Any]],
    threads: Optional[int],
) -> npt.NDArray[np.float64]: ...
def devices() -> Tuple[List[Tuple[str, str, int, Optional[str]]], Optional[str]]: ...
