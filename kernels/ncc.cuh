// Shared by all NCC kernels: a template's numbers, the score, and the report of a peak.
//
// Oracle: that of ncc.cu, ncc_mma.cu and ncc_wgmma.cu, which include this.
#pragma once

#include "shared.h"

// A template, as the host describes it.
struct Pattern {
  int w, h;
  long long n;         // pixels that count
  long long t1;        // their sum
  long long variance;  // n t2 - t1 t1
};
static_assert(sizeof(Pattern) == 32 && OFFSET(Pattern, n) == 8 && OFFSET(Pattern, variance) == 24,
              "as the host fills it");

// A peak and the scores beside it, which are undefined where the map ends.
struct Candidate {
  unsigned tag;  // which search it belongs to
  unsigned x, y;
  unsigned unused;
  double score, left, right, above, below;
};
static_assert(sizeof(Candidate) == 56 && OFFSET(Candidate, score) == 16, "as the host reads it");

__device__ double score(Pattern t, long long s, long long ss, long long st) {
  const long long numerator = t.n * st - s * t.t1;
  const long long window_variance = t.n * ss - s * s;
  // Variances are whole numbers: a product below 1 is 0, and then the numerator is 0 too. So a flat window
  // scores 0.
  const double squared = fmax(double(window_variance) * double(t.variance), 1.0);
  return fmin(fmax(double(numerator) / sqrt(squared), -1.0), 1.0);
}
