// Expands luma of limited range (16 to 235) to full range (0 to 255), where it lies:
//
//     y -> clamp(round((y - 16) * 255 / 219))
//
// In integers: 219 is odd, so no quotient lies halfway between two values. Each thread has one word, 4
// pixels; the padding of rows, which is never read, is expanded too. No shared memory.
//
// Oracle: `colour::expanded` of lockon-core, in every_value_of_luma_is_expanded_as_on_the_host
// (crates/lockon-cuda/src/range.rs).

constexpr int BLOCK = 256;

// Grid (words / BLOCK), block BLOCK.
extern "C" __global__ void expand(unsigned* pixels, unsigned words) {
  const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
  if (place >= words) return;
  const unsigned limited = pixels[place];
  unsigned full = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const unsigned above_black = max(limited >> shift & 255, 16u) - 16;
    full |= min((above_black * 255 + 109) / 219, 255u) << shift;
  }
  pixels[place] = full;
}
