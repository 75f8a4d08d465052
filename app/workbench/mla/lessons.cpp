#include "app/workbench/mla/lessons.h"

namespace attnscope {
namespace {

bool stores_codes(const ModelConfig& config) {
  return config.mla.latent_record == AS_RECORD_LATENT_656;
}
bool transforms(const ModelConfig& config) { return config.mla.hadamard; }

constexpr Lesson kLessonsOfMla[] = {
    {"absorbed_head_of_next", AS_OP_MLA_Q_ABSORB, "Every head asks with its neighbour's words",
     "Absorbed, a head's query goes through the keys' rows of kv_b_proj that belong to that head. "
     "Here it goes through those of the next head.",
     "mla_q_absorb multiplies by the weight, head by head. The 512 latent dimensions of every head "
     "are off, the 64 rotated ones behind them are right: only the product is wrong.",
     "Noise that looks like a damaged checkpoint. It happens when the weight is split into its two "
     "parts once, at load time, and heads and dims change places there."},
    {"query_turned_by_halves", AS_OP_MLA_Q_ABSORB, "Distances between words come out scrambled",
     "This attention turns dims 2i and 2i + 1 of a query together, its indexer dims i and i + 32. "
     "Here queries are turned as the indexer's are.",
     "mla_q_absorb turns queries. The latent dimensions are right and all rotated ones are off but "
     "the first token's, which is turned by nothing.",
     "Fluent text that loses track of order. Converters that reorder rows of q_b_proj for another "
     "style of rotation, in an engine that rotates in the first style, do this."},
    {"rotary_key_of_latent", AS_OP_MLA_KV_INSERT, "Nothing finds its place in the context",
     "One projection makes the low-rank query, the latent and the rotary key, side by side; the "
     "key is the last 64 columns. Here it is taken from where the latent begins.",
     "mla_kv_insert cuts the projection's row. The row that it stores is right in its first 512 "
     "dimensions and wrong in the last 64.",
     "A model that attends by content alone. With fused projections an offset of one part is an "
     "easy mistake, and shapes do not show it."},
    {"latent_scales_of_first", AS_OP_MLA_KV_INSERT, "Some of each remembered word is too loud",
     "A latent row has four FP8 blocks of 128 with an fp32 scale each. Here all four places hold "
     "the first one's scale.",
     "mla_kv_insert quantises. The row before it is right, the codes are right, and bytes 516 to "
     "527 of the stored row are not.",
     "Slightly worse answers at first sight: blocks of one row often have scales within a factor "
     "of two.",
     stores_codes},
    {"latent_position_of_chunk", AS_OP_MLA_KV_INSERT, "Long prompts are read as if they began anew",
     "Keys are turned by the position in the request. Here it is the place in the step.",
     "mla_kv_insert turns keys. The first step of a request alone is right, as both numbers are "
     "the same there; the 512 latent dimensions always are.",
     "Short tests pass. Prompts longer than a chunk and every decoded token have keys at wrong "
     "positions."},
    {"index_hadamard_of_keys_alone", AS_OP_INDEX_QUERY, "The selection is as good as a dice",
     "Index queries and keys are both transformed before they are quantised, which changes no dot "
     "product. Here the queries are not.",
     "index_query makes the queries. Their row before quantisation is off in all dimensions, while "
     "stored keys are right.",
     "Attention reads arbitrary tokens once a request has more of them than it selects; shorter "
     "ones are untouched, and so are short tests.",
     transforms},
    {"index_query_scale_lost", AS_OP_INDEX_QUERY, "One head of the jury shouts, another whispers",
     "A head's score is a product of FP8 codes; the scale of its query is part of the head's "
     "weight. Here it is left out.",
     "index_query folds the scale into the weights. Codes are right and weights are wrong by a "
     "factor of their own for each head, which is the scale.",
     "A selection that is a little worse: heads with large queries count too little. Scores stay "
     "plausible."},
    {"index_query_turned_at_end", AS_OP_INDEX_QUERY, "The right words are looked for elsewhere",
     "The indexer turns the first 64 of 128 dimensions, attention the last 64. Here index queries "
     "are laid out as attention's.",
     "index_query turns queries. Keys are turned at their beginning, so that the scores compare "
     "turned dimensions with others.",
     "Engines that share one rotation between both have had this; short contexts, where everything "
     "is selected, look right."},
    {"index_bias_lost", AS_OP_INDEX_KEY_INSERT, "The library's catalogue is a little off",
     "Index keys get a LayerNorm, with a weight and a bias. Here there is no bias.",
     "index_key_insert norms the key. Its row is off by the same vector for every token, turned by "
     "the position and spread by the transform.",
     "A loader that looks for k_norm.weight alone does this. Other norms of the model have no "
     "bias, so that nothing complains."},
    {"index_mean_kept", AS_OP_INDEX_KEY_INSERT, "All pages of the catalogue look alike",
     "A LayerNorm takes the mean off before it scales. Here the mean stays, as in an RMS norm.",
     "index_key_insert norms the key. Where the mean of a key is small it is nearly right.",
     "All other norms of the model are RMS norms: the wrong class in one line of a port."},
    {"mla_scale_of_latent", AS_OP_SPARSE_MLA_ATTENTION, "Attention is spread too thin",
     "Scores are scaled by the width of a head's query before absorption, and by YaRN's square. "
     "Here it is the width of the latent row, 576.",
     "The attention op is given the scale. Its LSE is off together with its output, which says "
     "that scores are wrong, not values.",
     "Duller answers, and worse the longer the context. The kernel sees rows of 576 numbers, so "
     "that this scale looks natural."},
    {"mla_own_row_unseen", AS_OP_MLA_ATTENTION, "A word does not hear itself",
     "A token at position p sees rows 0 to p. Here it sees those before p.",
     "The attention op counts rows from the position. The first token, which has no other row, is "
     "right.",
     "Hardly anything in a long context: one row of many is missing. Repeated words and copied "
     "numbers suffer."},
    {"values_of_key_rows", AS_OP_MLA_V_UP, "The answer is in the wrong language",
     "kv_b_proj has the keys' rows of a head, then the values'. Outputs go through the second "
     "part; "
     "here through the first.",
     "mla_v_up multiplies by the weight. Outputs of attention before it are right, LSE too.",
     "Noise from the first token on. With heads whose two parts have the same size no shape "
     "complains."},
};

}  // namespace

std::span<const Lesson> mla_lessons() { return kLessonsOfMla; }

}  // namespace attnscope
