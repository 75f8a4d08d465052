#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/family/family.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kOnlyName = "model.safetensors";
constexpr std::size_t kLargestIndex = std::size_t{256} << 20;

}  // namespace

bool is_checkpoint_folder(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code) && fs::exists(fs::path(path) / "config.json", code);
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& folder,
                                                     const ModelConfig& config) {
  std::error_code code;
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(folder, family_of(config)));
  const fs::path index = fs::path(folder) / kIndexName;
  const fs::path only = fs::path(folder) / kOnlyName;
  if (fs::exists(index, code)) {
    if (auto ok = checkpoint->read_index(index.string()); !ok) return ok.error();
  } else if (fs::exists(only, code)) {
    if (auto ok = checkpoint->read_only_file(only.string()); !ok) return ok.error();
  } else {
    return bad_input(fmt::format("{}: has neither {} nor {}", folder, kIndexName, kOnlyName),
                     "name the folder of a checkpoint: config.json, the index and its shards");
  }
  return checkpoint;
}

Result<void> Checkpoint::add(const std::string& name, const std::string& shard) {
  const std::string role = family_->published_name(name);
  const auto [place, fresh] = places_.try_emplace(role, TensorPlace{name, shard});
  if (fresh) return {};
  return bad_input(fmt::format("{}: tensors {} and {} are both {}", index_,
                               shown_name(place->second.name), shown_name(name), role),
                   "keep one of the two names");
}

Result<void> Checkpoint::read_index(const std::string& path) {
  index_ = path;
  auto text = read_text_file(path, kLargestIndex);
  if (!text) return text.error();
  auto json = parse_json(*text, path);
  if (!json) return json.error();
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (!json->is_object() || map == json->end() || !map->is_object()) {
    return bad_input(path + ": weight_map: expected an object {\"tensor\": \"file\"}",
                     "the file is no index of a checkpoint: fetch it again");
  }
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      return bad_input(fmt::format("{}: weight_map: tensor {}: expected the name of a file", path,
                                   shown_name(name)));
    }
    const auto& shard = file.get_ref<const std::string&>();
    const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                       shard.find('/') == std::string::npos &&
                       shard.find('\0') == std::string::npos;
    if (!plain) {
      return bad_input(fmt::format("{}: weight_map: tensor {}: {} is no file of this folder", path,
                                   shown_name(name), shown_name(shard)),
                       "a shard is named without a folder");
    }
    if (auto ok = add(name, shard); !ok) return ok;
  }
  return {};
}

Result<void> Checkpoint::read_only_file(const std::string& path) {
  index_ = path;
  auto file = TensorFile::open(path);
  if (!file) return file.error();
  for (const TensorEntry& entry : file->tensors()) {
    if (auto ok = add(entry.name, kOnlyName); !ok) return ok;
  }
  shards_.emplace(kOnlyName, std::move(*file));
  return {};
}

Result<const TensorFile*> Checkpoint::shard(const TensorPlace& place) {
  const auto known = shards_.find(place.shard);
  if (known != shards_.end()) return &known->second;
  const std::string path = (fs::path(folder_) / place.shard).string();
  std::error_code code;
  if (!fs::exists(path, code)) {
    return bad_input(
        fmt::format("{}: shard is missing; {} says tensor {} is in it", path, index_,
                    shown_name(place.name)),
        "fetch the shard, or run layers that lie in those that are there (model.layers)");
  }
  auto file = TensorFile::open(path);
  if (!file) return file.error();
  return &shards_.emplace(place.shard, std::move(*file)).first->second;
}

Result<Checkpoint::Found> Checkpoint::get(const std::string& role) {
  const auto place = places_.find(role);
  if (place == places_.end()) {
    return bad_input(
        fmt::format("{}: has no tensor {}, nor one by another name of it", index_, role),
        "the layers that run need it; model.layers chooses others");
  }
  auto file = shard(place->second);
  if (!file) return file.error();
  const TensorEntry* entry = (*file)->find(place->second.name);
  if (entry == nullptr) {
    return bad_input(fmt::format("{}: has no tensor {}, but {} says so", (*file)->path(),
                                 shown_name(place->second.name), index_),
                     "index and shards are of different models: fetch them again");
  }
  return Found{*file, entry, place->second.shard};
}

}  // namespace attnscope
