// A model as a graph: what its ops read and put out, by name. From it come the params of each call,
// the order of ops, their streams on a device, what ranks share, who made what an op reads, and the
// drawing of a layer. A family of models writes its graphs down once (family.h).
//
//   Node(AS_OP_WO_B).reads("x", z, {width}).weight("weight", "wo_b").makes("y", y, AS_BF16,
//   {kStepTokens, hidden})
//
// Bindings are by the names of the op table's taps. Taps that a node does not bind are absent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/metadata/step_tensor.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_spec.h"
#include "kernels/params/op_table.h"

namespace attnscope {

// A value that one op puts out and others read; an index into ModelGraph::values.
using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// Sizes of axes that a step alone knows.
inline constexpr std::int64_t kStepTokens = -1;    // tokens of the step
inline constexpr std::int64_t kSampledRows = -2;   // rows to sample from
inline constexpr std::int64_t kScoreColumns = -3;  // cached entries that a token may select from
using Shape = std::vector<std::int64_t>;

// What a tap is bound to.
enum class BoundTo {
  kValue,
  kWeight,
  kWeightScale,  // of the weight's blocks, where it is in FP8
  kCache,        // of a role, in this layer
  kSlots,        // where new rows of that cache go
  kTable,        // its block table
  kStep          // a tensor of the step's metadata, by name
};

struct Binding {
  const as_tap_info* tap = nullptr;
  BoundTo to = BoundTo::kValue;
  ValueId value = kNoValue;
  std::string_view weight;  // kWeight, kWeightScale: its name (WeightSpec)
  CacheId role;             // kCache, kSlots, kTable
  // kStep, kSlots, kTable: the step's tensor that this is, or a part of.
  std::string_view name;
  int number = -1;  // kStep: of that tensor (step_tensor.h); once a ModelGraph is whole
  // The axes behind the first as the op sees them; empty = as the value has them.
  Shape view;
  // Of a value that is put out: as the engine has it, and, where the engine has codes, the shape of
  // the values that ref.exact has in their place. Empty: it has none.
  std::int32_t dtype = AS_BF16;
  Shape shape;
  bool codes = false;
  Shape values;

  bool is_output() const { return tap->direction == AS_TAP_OUT; }
};

class Node {
 public:
  // id: unique in its layer, "indexer/q_proj"; empty = the op's name.
  explicit Node(as_op_id op, std::string id = {}, int branch = 0);

  Node& reads(const char* tap, ValueId value, Shape view = {});
  Node& makes(const char* tap, ValueId value, std::int32_t dtype, Shape shape, Shape view = {});
  Node& makes_codes(const char* tap, ValueId value, Shape shape, Shape values,
                    std::int32_t dtype = AS_U8);
  Node& weight(const char* tap, std::string_view weight);
  Node& cache(const char* tap, CacheId role);
  Node& slots(const char* tap, CacheId role, std::string_view name);
  Node& table(const char* tap, CacheId role, std::string_view name);
  Node& step(const char* tap, std::string_view name);
  // On a device it is launched before this op of its layer, as soon as it can.
  Node& launched_before(as_op_id op);
  Node& in_phase(int phase);

  const std::string& id() const { return id_; }
  // The last part of the id.
  std::string label() const { return id_.substr(id_.rfind('/') + 1); }
  as_op_id op() const { return op_; }
  int branch() const { return branch_; }
  as_op_id before() const { return before_; }  // AS_OP_COUNT = in the order of ops
  int phase() const { return phase_; }         // of ModelGraph::phases; -1 outside the layers
  const std::vector<Binding>& bindings() const { return bindings_; }
  const Binding* find(std::string_view tap) const;
  bool read_instead(ValueId value, ValueId other);
  void number_step_tensors(std::span<const StepTensor> own);

 private:
  Binding& bind(const char* tap, BoundTo to);

  std::string id_;
  as_op_id op_;
  int branch_, phase_ = -1;
  as_op_id before_ = AS_OP_COUNT;
  std::vector<Binding> bindings_;
};

// Whether an op lists rows that its layer has selected: slots of entries, for attention.
inline bool lists_selected(std::int32_t op) {
  return as_op_role(op) == AS_ROLE_INDEX_LIST && as_op_find(op)->phase == AS_PHASE_LAYER;
}

// Whether an input is what an output of another op is, or a part of it.
bool reads_from(const Binding& input, const Binding& output);
// Whether `reader` reads a value, a cache or a tensor of the step that `writer` puts out.
bool depends(const Node& reader, const Node& writer);

// The ops of one layer, or of what comes before or after the layers.
class LayerGraph {
 public:
  LayerGraph() = default;
  // Sorts the nodes: each after those that it reads from, else as they are listed.
  explicit LayerGraph(std::vector<Node> nodes);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<as_op_id>& ops() const { return ops_; }  // in the order in which they run
  const Node* find(as_op_id op) const;
  // The output that a value is; nullptr = no op of these makes it.
  const Binding* maker(ValueId value) const;
  // Sets Binding::number. own: the family's.
  void number_step_tensors(std::span<const StepTensor> own);
  // Gives another value to who reads this one; the op that did, AS_OP_COUNT = none.
  as_op_id read_instead(ValueId value, ValueId other);

 private:
  std::vector<Node> nodes_;
  std::vector<as_op_id> ops_;
};

struct Family;

// How a weight is dealt out to the ranks of a tensor-parallel model.
enum class Shard {
  kWhole,   // every rank has it
  kRows,    // a part of the first axis: what it makes is the rank's own
  kColumns  // a part of the second axis: what it makes is a part of a sum over ranks
};

struct ModelGraph {
  const Family* family = nullptr;
  std::vector<std::string> values;                    // names
  std::map<std::string, Shard, std::less<>> weights;  // by name (rank_split.h)
  std::map<CacheId, CacheSharding> caches;            // that its layers write, likewise
  std::vector<std::string> branches;                  // captions; the first is the main path
  std::vector<std::string> phases;                    // of a layer, in order: captions
  LayerGraph before, after;
  std::vector<LayerGraph> layers;  // by running layer
  // Where the session comes in: the hidden state that a layer begins with and the one it ends with,
  // its normed input, the rows to sample from, the sampled tokens.
  ValueId hidden = kNoValue, hidden_out = kNoValue, layer_input = kNoValue;
  ValueId last = kNoValue, sampled = kNoValue;
  // The layer that drafts: it runs after the tokens are sampled, on `hidden` and on what follows
  // each token, and ends with a head of its own, of the same rows. -1 = there is none.
  int draft_layer = -1;
  ValueId draft_out = kNoValue, draft_last = kNoValue, drafted = kNoValue;
  // Of a model on several ranks: a value of which each rank has a part, what they add up to, the op
  // that makes the part, and the op that reads the sum.
  struct Sum {
    ValueId part = kNoValue, total = kNoValue;
    as_op_id made_by = AS_OP_COUNT, read_by = AS_OP_COUNT;
  } sum;

  // Where rows lie in host memory: what exchange_rows is given beside what was selected, by the
  // session, and where it says that all of it lies.
  struct Exchange {
    ValueId selected = kNoValue, slots = kNoValue;
    ValueId places = kNoValue, fresh_from = kNoValue, pages_to = kNoValue;
    ValueId missed_from = kNoValue, pool_to = kNoValue;
  } exchange;

  const LayerGraph& layer(int i) const { return layers[static_cast<std::size_t>(i)]; }
  // A layer's graph, or (layer < 0) the one that has the op.
  const Node& node(int layer, as_op_id op) const;
  // Node::phase() in whichever layer has the op.
  int phase(as_op_id op) const;
  ValueId add_value(std::string name);
};

// A tap that an earlier op of the same part puts out. whole: every byte of it.
struct OpRead {
  as_op_id reader;
  const char* input;
  as_op_id writer;
  const char* output;
  bool whole = true;  // false: through a cache, or a part of the output
};
// part: one of the graph's. A sum over ranks counts as read of the op that makes a part of it.
std::vector<OpRead> reads_within(const ModelGraph& graph, const LayerGraph& part);

// Ops that decide which rows of a cache a reader finds where, by any of its layers: who writes
// them, who makes its list or table and the writer's slots, and what these are made of. tap: of the
// reader, or the writer's own; empty where it is no cache of the op.
std::vector<as_op_id> makers_of_rows(const ModelGraph& graph, as_op_id op, std::string_view tap);

}  // namespace attnscope
