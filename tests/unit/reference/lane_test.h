// What the tests of the references share: calling an op of a lane, and tensors over vectors.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/lane_table.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"
#include "reference/register.h"

namespace attnscope::reference {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class Params>
Params new_params() {
  Params p{};
  p.head = {sizeof(Params), AS_PARAMS_VERSION};
  return p;
}

// Status and message of a call.
struct Outcome {
  std::int32_t status;
  std::string message;
};

template <class Params>
Outcome call(const Lane* lane, as_op_id id, const Params& p) {
  as_error error{};
  as_call call{};
  call.struct_size = sizeof(call);
  const std::int32_t status = lane->ops[id](&p, &call, &error);
  return {status, error.message};
}

template <class Params>
void run(const Lane* lane, as_op_id id, const Params& p) {
  const Outcome outcome = call(lane, id, p);
  ASSERT_EQ(outcome.status, AS_OK) << outcome.message;
}

// A call that must be refused with a message that holds every one of `words`.
template <class Params>
void expect_refused(as_op_id id, const Params& p, const std::vector<std::string>& words) {
  for (const Lane* lane : {exact_lane(), sim_lane()}) {
    const Outcome outcome = call(lane, id, p);
    EXPECT_EQ(outcome.status, AS_BAD_INPUT) << outcome.message;
    for (const std::string& word : words) {
      EXPECT_NE(outcome.message.find(word), std::string::npos)
          << "'" << word << "' is not in: " << outcome.message;
    }
  }
}

using Doubles = std::vector<double>;
using Int32s = std::vector<std::int32_t>;
using Int64s = std::vector<std::int64_t>;
using Byte = std::uint8_t;

// Where element `column` of a row of `width` lies.
constexpr std::size_t index_of(int row, int width, int column) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
         static_cast<std::size_t>(column);
}

template <class T>
as_tensor over(std::vector<T>& values, std::initializer_list<std::int64_t> shape) {
  return make_tensor(values.data(), shape);
}

// A logical cache over values or records.
template <class T>
as_cache logical(std::vector<T>& values, std::int32_t record, std::int32_t width,
                 std::int64_t row_elements) {
  as_cache cache{};
  const auto rows = static_cast<std::int64_t>(values.size()) / row_elements;
  cache.data = make_tensor(values.data(), {rows, row_elements});
  cache.record = record;
  cache.addressing = AS_LOGICAL;
  cache.width = width;
  return cache;
}

inline as_rope compress_rope() { return {no_tensor(), 160000, 16, 65536, 32, 1}; }
inline as_rope plain_rope() { return {no_tensor(), 10000, 1, 65536, 32, 1}; }

inline Doubles normal(std::size_t n, unsigned seed, double deviation = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(0, deviation);
  Doubles values(n);
  for (double& v : values) v = distribution(engine);
  return values;
}

}  // namespace attnscope::reference
