#include "app/workbench/deepseek_v4/lessons.h"

namespace attnscope {
namespace {

// Entries of layers of ratio 4 alone pool the window before their own.
bool pools_overlapping(const ModelConfig& config) {
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    if (config.ratio(layer) == 4) return true;
  }
  return false;
}

constexpr Lesson kLessonsOfV4[] = {
    {"window_off_by_one", AS_OP_SWA_INDEX, "Answers forget a token too early",
     "The window of every token begins one position late: its list names 127 slots where 128 "
     "belong, and the oldest token is never read.",
     "swa_index makes the list, and a list is compared exactly. The attention that reads it does "
     "the right thing with the slots it is given, so it stays as its reference; what it inherits "
     "is not held against it.",
     "Nothing fails: 127 of 128 rows are attended, the text stays fluent and differs only by "
     "chance, much later. Prompts that are shorter than the window show nothing at all."},
    {"topk_one_short", AS_OP_INDEXER_TOPK, "A chosen passage is dropped",
     "The last entry of every token's selection is replaced by -1. Lists ascend, so it is always "
     "the newest of the chosen entries.",
     "indexer_topk chooses from the very scores that its reference is given. A missing entry with "
     "no other in its place is no near-tie: no two scores were close, one was thrown away. "
     "topk_to_slots and the attention are right for the list they get.",
     "Hardly anything: the newest entry mostly covers tokens that the window reads as well. The "
     "loss shows on long prompts, as an answer that misses a detail now and then."},
    {"scale_rounded_down", AS_OP_Q_ROPE_KV_INSERT, "Large cache values come back too small",
     "A latent row is stored as FP8 in blocks of 64 values that share a power-of-two scale. The "
     "scale is rounded down in place of up, so values above 448 times the scale saturate and lose "
     "up to half their size.",
     "q_rope_kv_insert writes the row, and the bytes it wrote are compared with those of the "
     "reference that quantises the same row. Whoever reads the row later takes the bytes as they "
     "are.",
     "A slightly worse model. There is no NaN and no wrong shape; the rows with outliers, which "
     "matter most, are hurt most, and a tolerance wide enough for FP8 as a whole lets it pass."},
    {"relu_missing", AS_OP_INDEXER_LOGITS, "The indexer prefers the wrong entries",
     "The score of an entry is the sum over the index heads of weight times relu(q . k). Without "
     "the ReLU a head that should have no say counts with a negative product.",
     "indexer_logits makes the scores, and they are compared within the tolerance of a score. The "
     "selection that follows is the right one for those scores.",
     "Nothing at all until there are more entries than are selected. Beyond that length other "
     "passages are read, and long prompts are answered worse."},
    {"sink_scaled", AS_OP_SPARSE_ATTENTION, "Heads attend where they should rest",
     "The sink is a logit that is used as it is. Here it is multiplied by the softmax scale, "
     "1/sqrt(512), like a product of q and k, so every sink moves close to 0.",
     "sparse_attention alone reads the sinks. Its output o is off by one factor per head, while "
     "its LSE, which is without the sink, stays right: that pair points at the denominator.",
     "Heads with a positive sink speak too loudly, those with a negative one too softly. The text "
     "stays fluent; heads whose sink happens to be near 0 hide it."},
    {"lse_in_base_2", AS_OP_SPARSE_ATTENTION, "A logarithm in another base",
     "The LSE is a natural logarithm. Kernels that work with exp2 have it in base 2, and some "
     "return "
     "it so: 1.4427 times the right one.",
     "sparse_attention's lse is wrong in every row by one factor, its o is right. The pattern in "
     "the "
     "Error panel has the factor and its name.",
     "Nothing while one worker computes the whole row. Merged as natural logarithms, parts with a "
     "large sum weigh too much: outputs lean to the part with more rows, a little, everywhere."},
    {"lse_with_sink", AS_OP_SPARSE_ATTENTION, "Parts of an attention no longer merge",
     "The LSE is the logarithm of the sum over the real entries. Here the sink is counted in it.",
     "sparse_attention returns o and lse. Its o is right, lse alone is not, and within one pass "
     "nobody else reads it.",
     "Nothing while one worker computes the whole row. Where the cache is split among workers "
     "their parts are merged by their LSE, each part then brings the sink with it, and outputs "
     "shrink with the number of parts: a bug of long prompts and of many GPUs."},
    {"overlap_half_lost", AS_OP_COMPRESS_INSERT, "Entries know half of what they should",
     "A C4A entry pools eight rows: its own four and the four before them. Here the older four "
     "get no weight.",
     "compress_insert pools and writes the entry. The rows it pools are in the state cache as "
     "they should be, which compressor_state has shown before; the entry made of them is not. "
     "It shows in a step that completes an entry, every fourth token.",
     "Entries that overlap no longer do: what stands at their borders is remembered worse. The "
     "text stays fluent.",
     pools_overlapping},
    {"entry_rope_position", AS_OP_COMPRESS_INSERT, "Entries stand in the wrong place",
     "A compressed entry is rotated at the position of its first token. Here it is rotated at "
     "that of its last: 3 positions off in C4A layers, 127 in C128A layers.",
     "compress_insert rotates and writes the entry. Only the 64 rotary dimensions of the row "
     "differ, the other 448 are as they should be: that points at the rotation.",
     "The distance to everything beyond the window is misjudged a little. Short tests pass; the "
     "order of far things gets blurred."},
};

}  // namespace

std::span<const Lesson> deepseek_v4_lessons() { return kLessonsOfV4; }

}  // namespace attnscope
