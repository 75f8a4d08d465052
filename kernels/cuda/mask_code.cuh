// Masks, score functions and biases by distance inside kernels: what a call asks of each score
// beside scale, soft cap and ALiBi. Code runs as kernels/params/mask_code.h says, in float64 and
// without fused operations, so that comparisons come out as on the CPU.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.cuh"
#include "kernels/params/mask_code.h"

namespace attnscope::cuda {

struct MaskPlace {
  std::int64_t query, key, head, request;
};

__device__ __forceinline__ bool mask_holds(double x) { return x > 0 || x < 0; }

__device__ inline double mask_of_one(int op, double a) {
  switch (op) {
    case AS_MASK_NOT:
      return mask_holds(a) ? 0 : 1;
    case AS_MASK_NEG:
      return -a;
    case AS_MASK_ABS:
      return fabs(a);
    case AS_MASK_FLOOR:
      return floor(a);
    case AS_MASK_EXP2:
      return exp2(a);
    default:
      return tanh(a);
  }
}

__device__ inline double mask_of_two(int op, double a, double b) {
  switch (op) {
    case AS_MASK_ADD:
      return __dadd_rn(a, b);
    case AS_MASK_SUB:
      return __dsub_rn(a, b);
    case AS_MASK_MUL:
      return __dmul_rn(a, b);
    case AS_MASK_DIV:
      return __ddiv_rn(a, b);
    case AS_MASK_FLOOR_DIV:
      return floor(__ddiv_rn(a, b));
    case AS_MASK_MOD:
      return __dsub_rn(a, __dmul_rn(b, floor(__ddiv_rn(a, b))));
    case AS_MASK_LT:
      return a < b ? 1 : 0;
    case AS_MASK_LE:
      return a <= b ? 1 : 0;
    case AS_MASK_GT:
      return a > b ? 1 : 0;
    case AS_MASK_GE:
      return a >= b ? 1 : 0;
    case AS_MASK_EQ:
      return a == b ? 1 : 0;
    case AS_MASK_NE:
      return a < b || a > b ? 1 : 0;
    case AS_MASK_AND:
      return mask_holds(a) && mask_holds(b) ? 1 : 0;
    case AS_MASK_OR:
      return mask_holds(a) || mask_holds(b) ? 1 : 0;
    case AS_MASK_MIN:
      return a < b ? a : b;
    default:
      return a > b ? a : b;
  }
}

__device__ inline double run_mask_code(const as_tensor& code, const MaskPlace& place,
                                       double score) {
  double stack[AS_MASK_STACK];
  int top = 0;  // values on it
  for (std::int64_t i = 0; i < code.shape[0]; ++i) {
    const int op = static_cast<int>(*at<double>(code, i));
    AS_DEVICE_CHECK(op >= AS_MASK_NUMBER && op < AS_MASK_OPS && top <= AS_MASK_STACK);
    if (op <= AS_MASK_SCORE) {
      AS_DEVICE_CHECK(top < AS_MASK_STACK);
      double value = score;
      if (op == AS_MASK_NUMBER) value = *at<double>(code, i, 1);
      if (op == AS_MASK_Q_IDX) value = static_cast<double>(place.query);
      if (op == AS_MASK_KV_IDX) value = static_cast<double>(place.key);
      if (op == AS_MASK_HEAD) value = static_cast<double>(place.head);
      if (op == AS_MASK_REQUEST) value = static_cast<double>(place.request);
      stack[top++] = value;
    } else if (op >= AS_MASK_NOT && op <= AS_MASK_TANH) {
      AS_DEVICE_CHECK(top >= 1);
      stack[top - 1] = mask_of_one(op, stack[top - 1]);
    } else if (op != AS_MASK_SELECT) {
      AS_DEVICE_CHECK(top >= 2);
      stack[top - 2] = mask_of_two(op, stack[top - 2], stack[top - 1]);
      --top;
    } else {
      AS_DEVICE_CHECK(top >= 3);
      stack[top - 3] = mask_holds(stack[top - 3]) ? stack[top - 2] : stack[top - 1];
      top -= 2;
    }
  }
  return stack[0];
}

__device__ __forceinline__ bool mask_shows(const as_tensor& code, const MaskPlace& place) {
  return mask_holds(run_mask_code(code, place, 0));
}

// position_bias (kernels/params/paged_params.h) of a head for a key `distance` on from the query.
__device__ inline float position_bias(const as_tensor& bias, std::int32_t most, bool causal,
                                      std::int64_t head, std::int64_t distance) {
  const std::int64_t side = causal ? bias.shape[0] : bias.shape[0] / 2, exact = side / 2;
  const std::int64_t behind = distance < 0 ? -distance : distance;
  const std::int64_t apart = causal ? max(-distance, std::int64_t{0}) : behind;
  std::int64_t bucket = apart;
  if (apart >= most) {
    bucket = side - 1;
  } else if (apart >= exact) {
    const auto e = static_cast<double>(exact);
    const double share = log(static_cast<double>(apart) / e) / log(static_cast<double>(most) / e);
    // What is a whole number must not come out below it.
    const double more = __dadd_rn(__dmul_rn(share, static_cast<double>(side - exact)), 0x1p-30);
    bucket = min(side - 1, exact + static_cast<std::int64_t>(more));
  }
  if (!causal && distance > 0) bucket += side;
  return *at<float>(bias, bucket, head);
}

// Whether a call asks for any of it, which kernels on tensor cores do not compute.
template <class Params>
bool asks_each_score(const Params& p) {
  return p.mask_code.data != nullptr || p.score_code.data != nullptr ||
         p.position_bias.data != nullptr;
}

// The score of a key behind scale, cap and slopes; distance: of the key from the query, whatever
// places the code is asked about.
template <class Params>
__device__ __forceinline__ float asked_score(const Params& p, const MaskPlace& place,
                                             std::int64_t distance, float score) {
  if (present(p.position_bias)) {
    score += position_bias(p.position_bias, p.bias_distance, p.causal != 0, place.head, distance);
  }
  if (!present(p.score_code)) return score;
  return static_cast<float>(run_mask_code(p.score_code, place, static_cast<double>(score)));
}

}  // namespace attnscope::cuda
