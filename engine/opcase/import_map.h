// A map from the tensors of another engine's dump to the ops of attnscope: JSON with comments.
//
//   {"format": "attnscope-import-map", "version": 1, "engine": "vllm",
//    "ops": {"sparse_attention": {
//      "tensors": {"q": {"name": "layers.{layer}.q"}, ..},
//      "caches": {"cache": {"name": "swa_kv_cache", "record": "latent", "rows_per_block": 64}},
//      "numbers": {"scale": 0.04419417382415922}}}}
//
// Beside "ops": "token_ids", "sample_rows" and "token_to_req", tensors of integers that no op needs
// to read: the ids of the tokens, which rows the ops after the layers got, whose tokens they are.
//
// "{layer}" in a name is replaced. Where layers of different types have other tensors or numbers,
// an op is a list of such objects, each with "layers": ["SWA"] or ["C4A", "C128A"]. The manual
// lists all keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/opcase/case_op.h"

namespace attnscope {

struct ImportTensor {
  std::string name;                 // empty where one of the next two is not
  std::vector<std::string> stack;   // names of tensors that lie behind each other along a new axis
  std::vector<std::string> concat;  // of tensors that lie behind each other along an axis they have
  std::int64_t axis = 0;            // that one; -1 = the last
  std::vector<std::int64_t> values;   // the elements themselves, of `shape`
  std::vector<std::int64_t> shape;    // empty = the dump's; one -1 = what is left
  std::vector<std::int64_t> stride;   // in elements of the dump; empty = dense
  std::int64_t offset = 0;            // in elements of the dump
  std::int64_t axes = 0;              // that are left once leading ones are joined; 0 = as they are
  std::vector<std::int64_t> slice;    // an axis, where it begins and ends; empty = all of it
  std::vector<std::int64_t> permute;  // of the axes, afterwards
  // Codes that stand for values: "", "e4m3" or "e4m3fnuz", times a factor or a tensor with one.
  std::string decode;
  double factor = 1;
  std::string factor_name;
  std::vector<std::int64_t> pad;  // sizes of the axes at the end, zeros behind; empty = as they are
  std::string tolerance;          // of an output: a class of the tolerance file in place of its own
};

struct ImportCache {
  std::string name;
  std::string scales;  // a tensor of their own; empty = with the payloads
  std::int32_t record = AS_RECORD_LATENT;
  bool interleaved = false;  // every row followed by its scales, not planar
  bool fnuz = false;         // e4m3 codes of the FNUZ kind
  std::int32_t rows_per_block = 0;
  std::int32_t width = 0;
  std::int64_t page_stride = 0;  // bytes; 0 = the dump's first axis counts pages
  std::int64_t offset = 0;       // bytes, of the first page
};

struct ImportRope {
  double base = 0, factor = 1, original_max_pos = 65536, beta_fast = 32, beta_slow = 1;
  std::int32_t frequencies = AS_ROPE_FP32;  // as_rope_frequencies, of a table that is computed
  std::string table;                        // a tensor of floats [positions,64]; empty = computed
};

struct ImportOp {
  CaseOp op;
  std::vector<std::string> layers;  // types of those it is of: "C4A"; empty = all
  std::map<std::string, ImportTensor> tensors;
  std::map<std::string, ImportCache> caches;
  std::map<std::string, ImportRope> ropes;
  std::map<std::string, double> numbers;
};

struct ImportMap {
  std::string engine;
  std::optional<ImportTensor> token_ids;     // [T] of every step
  std::optional<ImportTensor> sample_rows;   // [N]; else the last row of every request, or all
  std::optional<ImportTensor> token_to_req;  // [T]; else by the ops' own, or by positions
  std::vector<ImportOp> ops;
};

// The entry of each op that layers of this type have, in the map's order; without a type the first.
std::vector<const ImportOp*> ops_of_layer(const ImportMap& map,
                                          std::optional<std::string_view> type);

// A file, or a name from assets/maps ("vllm"). Where a number stands a map may have a text of
// dimensions of the model, "heads*head_dim" (import_model_sizes.h): those of `model`, else of the
// preset that the map names under "model".
Result<ImportMap> read_import_map(const std::string& name, const ModelConfig* model = nullptr);

}  // namespace attnscope
