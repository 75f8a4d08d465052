// What a second reading of a checkpoint looks at (engine/checkpoint/second_reading.h): each tensor
// of the file, the names that it may have there, and where its values are held. A family lists them
// apart from its weights (weight_spec.h), which loading goes by: a mistake in one of the two lists
// shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model/weights.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

// A part of a tensor in memory: rows and columns of it that some rank has. Exactly one of bf16, f32
// and codes is set.
struct HeldPart {
  int rank = 0;
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  std::int64_t pitch = 0;  // elements from row to row
  const bf16_t* bf16 = nullptr;
  const float* f32 = nullptr;
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t scale_pitch = 0;
};

// What a tensor is for, and where it went.
struct SecondTarget {
  std::string published;
  std::vector<std::string> names, scale_names;
  as_op_id op = AS_OP_COUNT;
  const char* tap = "weight";
  int layer = -1;  // published
  std::int64_t rows = 0, columns = 1;
  double shift = 0;                       // added to every value, in fp32
  std::map<std::int64_t, float> instead;  // by row: held in the place of the file's
  bool fp8 = false;                       // held as codes and scales by the switch
  std::vector<HeldPart> pieces;
};

// Of a tensor around the layers, or of one that every rank has whole: that of `rank` is looked at.
// names: where files have it.
SecondTarget whole_target(std::string published, std::vector<std::string> names, as_op_id op,
                          std::int64_t rows, std::int64_t columns, int rank, const Weight& held);

}  // namespace attnscope
