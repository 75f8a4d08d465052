// How long the values of a part of a graph live: who makes each, who reads it last, and how many
// bytes of them a step needs at once.
//
//   for (const ValueLife& life : value_lives(graph, graph.layer(2))) ..
//
// An op's place is its index in the order of its part (LayerGraph::nodes). On several streams the
// last reader by place need not be the last in time: OpOrder says what is done for certain.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/family/launch_order.h"

namespace attnscope {

struct ValueLife {
  ValueId value = kNoValue;
  int maker = -1;            // place; -1: the value is there when the part begins
  std::vector<int> readers;  // places, ascending
  bool lives_on = false;     // the next layer begins with it, or the session takes it
  std::int32_t dtype = AS_BF16;
  Shape shape;  // as the engine has it

  int last() const { return readers.empty() ? maker : readers.back(); }
};

// Of the values that its ops read or make. The sum over ranks is made where its parts are.
std::vector<ValueLife> value_lives(const ModelGraph& graph, const LayerGraph& part);

// Which ops of a part are done for certain when another begins.
class OpOrder {
 public:
  static OpOrder one_by_one(const LayerGraph& part);
  // order: launch_order() of the part's model; layer: index, -1 after the layers.
  static OpOrder on_streams(const LayerGraph& part, const std::vector<Launch>& order, int layer);

  bool before(int a, int b) const {
    return done_[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)];
  }

 private:
  explicit OpOrder(std::size_t ops) : done_(ops, std::vector<bool>(ops, false)) {}

  std::vector<std::vector<bool>> done_;  // by place
};

// Whether a value may be needed while an op runs.
bool lives_during(const ValueLife& life, const OpOrder& order, int place);

// What a step puts in the place of axes that it alone knows.
struct StepSizes {
  std::int64_t tokens = 1, sampled_rows = 1, score_columns = 1;
};
std::int64_t bytes_of(const ValueLife& life, const StepSizes& sizes);

struct LivePeak {
  std::int64_t bytes = 0;
  int layer = -1;                // index; -1 after the layers
  as_op_id op = AS_OP_COUNT;     // that runs then
  std::int64_t bytes_apart = 0;  // of memory of its own for every value
};
// streams: of a device; else one op after another.
LivePeak live_peak(const ModelGraph& graph, const StepSizes& sizes, bool streams);

}  // namespace attnscope
