# What scripts/fuzz and run-fuzz let the targets have.

# The leak checker would blame GStreamer for what it keeps until the end.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0

limits_of() { # limits_of TARGET DICTIONARIES: libFuzzer's options in `limits`; 20 seconds and 1 GiB for one input
  limits=(-timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536)
  [ ! -f "$2/$1.dict" ] || limits+=("-dict=$2/$1.dict")
  # GLib never forgets a name, and caps are full of new ones: 2 GiB after 20 million.
  [ "$1" != caps ] || limits+=(-runs=5000000)
}
