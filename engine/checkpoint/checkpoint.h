// A folder with a model as it is published: config.json, safetensors files ("shards"), and
// model.safetensors.index.json, which says in which of them each tensor lies; a model in one file
// has model.safetensors and no index. Shards are mapped when a tensor of theirs is wanted first, so
// that layers that do not run cost nothing.
//
//   auto checkpoint = Checkpoint::open("DeepSeek-V4-Flash", config);
//   auto weights = load_weights(*checkpoint, config, threads);
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

struct Family;

// One tensor of a checkpoint and what became of it.
struct TensorUse {
  std::string name;    // as in the file
  std::string role;    // published name: "layers.2.attn.wq_a.weight"
  std::string shard;   // file name
  std::string dtype;   // "F8_E4M3", ..
  std::string scales;  // of an FP8 tensor: dtype of its scales; else empty
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;   // read, scales included
  std::int64_t rounded = 0;  // values that the weight's own dtype does not hold exactly
  std::string warning;       // what is not as published; empty = nothing
};

struct LoadedWeights {
  Weights weights;
  std::vector<TensorUse> used;  // in the order of reading
  std::int64_t unused = 0;      // tensors of the checkpoint that no running layer reads
};

class Checkpoint {
 public:
  // Reads the index alone, or the header of the one file there is. AS_BAD_INPUT names the file and
  // what is wrong with it.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& folder,
                                                  const ModelConfig& config);

  // A tensor by its published name; nullptr = the checkpoint has none.
  struct Found {
    const TensorFile* file = nullptr;
    const TensorEntry* entry = nullptr;
    std::string shard;
  };
  // Opens its shard. The checkpoint must have it: an error says which names were looked for.
  Result<Found> get(const std::string& role);
  bool has(const std::string& role) const { return places_.contains(role); }
  std::size_t size() const { return places_.size(); }
  const std::string& folder() const { return folder_; }
  // Where names come from: the index or the only file.
  const std::string& index() const { return index_; }

 private:
  struct TensorPlace {
    std::string name, shard;
  };
  Checkpoint(std::string folder, const Family& family)
      : folder_(std::move(folder)), family_(&family) {}
  Result<void> read_index(const std::string& path);
  Result<void> read_only_file(const std::string& path);
  Result<void> add(const std::string& name, const std::string& shard);
  Result<const TensorFile*> shard(const TensorPlace& place);

  std::string folder_, index_;
  const Family* family_;                       // whose names its tensors have
  std::map<std::string, TensorPlace> places_;  // by published name
  std::map<std::string, TensorFile> shards_;
};

// Whether this is a folder with a config.json.
bool is_checkpoint_folder(const std::string& path);

// The weights of the layers that run. Projections in FP8 become bf16, each value rounded once; with
// the switch projections=fp8 their codes and scales are kept, and others are quantised. A
// vocabulary of more than 256 entries is cut to its first 256, one for each byte.
Result<LoadedWeights> load_weights(Checkpoint& checkpoint, const ModelConfig& config,
                                   const as_threads* threads);

}  // namespace attnscope
