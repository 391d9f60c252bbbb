// Reads through the texture unit: a picture scaled and turned, and plain fetches, by which each mode of a
// texture object is compared with its model (src/textures/model.rs).
//
// No reported score depends on this. Members of a bank are resampled on the host, in integers; the unit's
// blending is documented only for its weights, not for its rounding.

// A texel of any number of channels as four; missing ones are 0.
__device__ float4 widen(float v) { return make_float4(v, 0.0f, 0.0f, 0.0f); }
__device__ float4 widen(float2 v) { return make_float4(v.x, v.y, 0.0f, 0.0f); }
__device__ float4 widen(float4 v) { return v; }
__device__ int4 widen(int v) { return make_int4(v, 0, 0, 0); }
__device__ int4 widen(int2 v) { return make_int4(v.x, v.y, 0, 0); }
__device__ int4 widen(int4 v) { return v; }

// out[i] = the texture at (at[3 i], at[3 i + 1], at[3 i + 2]). Linear memory uses the first as an index, 2-D
// memory the first two. One thread a fetch, along x.
//
// Integers come as 32 bits whatever the element, widened by the texture's format and not by `Texel`.
template <int dimensions, class Texel, class Result>
__device__ void fetch(cudaTextureObject_t texture, const float* at, Result* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = at[3 * i], y = at[3 * i + 1], z = at[3 * i + 2];
  if constexpr (dimensions == 1) {
    out[i] = widen(tex1Dfetch<Texel>(texture, int(x)));
  } else if constexpr (dimensions == 2) {
    out[i] = widen(tex2D<Texel>(texture, x, y));
  } else {
    out[i] = widen(tex3D<Texel>(texture, x, y, z));
  }
}

// fetch_<dimensions>d_<type of a texel>
#define FETCH(dimensions, texel, result)                                      \
  extern "C" __global__ void fetch_##dimensions##d_##texel(                   \
      cudaTextureObject_t texture, const float* at, result* out, int count) { \
    fetch<dimensions, texel>(texture, at, out, count);                        \
  }
#define FETCH_EACH(dimensions)      \
  FETCH(dimensions, float, float4)  \
  FETCH(dimensions, float2, float4) \
  FETCH(dimensions, float4, float4) \
  FETCH(dimensions, int, int4)      \
  FETCH(dimensions, int2, int4)     \
  FETCH(dimensions, int4, int4)
FETCH_EACH(1)
FETCH_EACH(2)
FETCH_EACH(3)

// A w x h picture of u8 scaled and turned counter-clockwise about its centre, into an out_w x out_h picture
// whose centre is the same. Rows count downwards, and pixel (i, j) lies at (i + 1/2, j + 1/2):
//
//   u = i + 1/2 - out_w / 2        x = cos * u - sin * v + w / 2        with cos = cos(angle) / scale,
//   v = j + 1/2 - out_h / 2        y = sin * u + cos * v + h / 2             sin = sin(angle) / scale
//   out[j][i] = the texture at (x / unit_x, y / unit_y), 0 to 1, times 255, rounded, halves up
//
// unit_x and unit_y are 1, or w and h where coordinates are normalised. One fetch a pixel: below half the
// size pixels are skipped. The texture's addressing defines pixels outside. `out` has rows of out_w bytes.
// One thread a pixel: grid (out_w / block.x, out_h / block.y), rounded up. Oracle:
// resampling_is_what_the_model_gives.
extern "C" __global__ void resample(cudaTextureObject_t texture, int w, int h, float unit_x, float unit_y, float cos,
                                    float sin, unsigned char* out, int out_w, int out_h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= out_w || j >= out_h) return;
  // Halves of whole numbers: exact.
  const float u = 0.5f * float(2 * i + 1 - out_w), v = 0.5f * float(2 * j + 1 - out_h);
  const float x = cos * u - sin * v + 0.5f * w, y = sin * u + cos * v + 0.5f * h;
  const float value = tex2D<float>(texture, x / unit_x, y / unit_y);
  out[size_t(j) * out_w + i] = static_cast<unsigned char>(floorf(value * 255.0f + 0.5f));
}
