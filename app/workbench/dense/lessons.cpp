#include "app/workbench/dense/lessons.h"

#include "engine/family/dense/dense.h"

namespace attnscope {
namespace {

template <class Has>
bool any_layer(const ModelConfig& config, const Has& has) {
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    if (has(layer)) return true;
  }
  return false;
}
bool rotates(const ModelConfig& config) {
  return any_layer(config, [&](int layer) { return dense_rope(config, layer).base > 0; });
}
// Fewer heads of keys than of queries, and more than one.
bool has_groups(const ModelConfig& config) {
  return config.kv_heads > 1 && config.kv_heads < config.heads;
}
bool has_window(const ModelConfig& config) {
  return any_layer(config, [&](int layer) { return dense_window(config, layer) > 0; });
}

constexpr Lesson kLessonsOfDense[] = {
    {"rope_style_swapped", AS_OP_ROPE_KV_INSERT, "Word order gets blurred from the first layer on",
     "A rotary embedding turns pairs of dimensions. Models pair dim i with dim i + N/2 (NeoX) or "
     "dim 2i with dim 2i + 1 (GPT-J); here the pairs are those of the other style.",
     "rope_kv_insert turns queries and keys. Both are compared with their reference before any "
     "other op reads them, and every one of their rotated dimensions is off; values, which are not "
     "turned, are right.",
     "Fluent nonsense. Queries and keys are still turned alike, so that a token finds itself and "
     "its neighbours; distances are wrong because frequencies belong to other dimensions. A "
     "checkpoint converted from another framework is the usual cause.",
     rotates},
    {"kv_group_off_by_one", AS_OP_PAGED_ATTENTION, "Heads look at what other heads have stored",
     "H query heads share G heads of keys and values: query head h reads KV head h / (H / G). Here "
     "it reads that of head h + 1, so that the last head of every group reads the next group's.",
     "paged_attention alone maps heads. Rows in the caches are as they should be, and heads in the "
     "middle of a group are exact: the error is in every (H / G)th head and nowhere else.",
     "A model that is a little worse and still fluent, as three heads in four are right. With one "
     "KV head a query head (MHA) every head is wrong, with one for all (MQA) none is: tests on "
     "those two miss it or shout.",
     has_groups},
    {"window_inclusive", AS_OP_PAGED_ATTENTION, "Answers remember one token too long",
     "A sliding window of W tokens counts the token's own row: positions p - W + 1 to p. Here the "
     "rows before it are counted, W of them, which is one too many.",
     "paged_attention computes the first row from window and position. Tokens before position W "
     "are as their reference; from there on the output has one row more. Only layers with a window "
     "show it.",
     "Nothing anybody sees. Libraries differ in what they call a window of W, (left, right) "
     "windows being W - 1; and once blocks that left the window are given back, the row too many "
     "is another request's, or none.",
     has_window},
    {"values_of_key_pages", AS_OP_PAGED_ATTENTION, "The right rows are found and keys come back",
     "Keys and values have pages of their own with the same slots. Here the values are read from "
     "the pages of the keys.",
     "paged_attention reads both caches. Its LSE, which is of queries and keys alone, is right, "
     "and its output is not: that pair points at the values.",
     "Noise from the first token on, whatever the prompt. It stays unnoticed only where nobody "
     "looks at outputs, as in a benchmark of speed."},
};

}  // namespace

std::span<const Lesson> dense_lessons() { return kLessonsOfDense; }

}  // namespace attnscope
