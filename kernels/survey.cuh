// What is found out about a whole frame before its pixels are compared.
//
// Oracle: that of threshold.cu and threshold_whole.cu, which include this.
#pragma once

#include "shared.h"

// In device memory; `begin_survey` makes it that of no pixels.
struct Survey {
  // Wolf: the greatest n * SS - S * S of a window, and the least luma.
  unsigned long long greatest;
  unsigned least;
  // Otsu and the triangle, or a fixed threshold: what is above is foreground.
  int level;
  // Number of pixels of each luma.
  unsigned histogram[256];
};

// In words of 4 bytes, for the host.
constexpr int SURVEY_WORDS = 260;
constexpr int SURVEY_LEVEL = 3;
static_assert(sizeof(Survey) == 4 * SURVEY_WORDS && OFFSET(Survey, level) == 4 * SURVEY_LEVEL, "as the host fills it");
