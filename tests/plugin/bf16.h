/* For the plugins of the tests: bf16 to and from float, rounded to even, NaNs not told apart. */
#pragma once

#include <stdint.h>
#include <string.h>

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
