#include "engine/tensorfile/dump_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "engine/io/json_object.h"
#include "engine/tensorfile/npy_file.h"
#include "engine/tensorfile/torch_file.h"
#include "engine/tensorfile/zip_file.h"

namespace attnscope {
namespace {

// A zip with "NAME.npy" in it, each an array.
Result<TensorFile> open_npz(const ZipFile& zip) {
  std::vector<TensorEntry> entries;
  std::vector<std::shared_ptr<const void>> owners = {zip.owner()};
  for (const ZipMember& member : zip.members()) {
    if (!member.name.ends_with(".npy")) {
      return bad_input(
          fmt::format("{}: member {} is no array", zip.path(), shown_name(member.name)),
          "it is neither what numpy.savez() nor what torch.save() writes");
    }
    auto bytes = zip.read(member);
    if (!bytes) return bytes.error();
    auto read = read_npy(bytes->bytes, zip.path(), member.name.substr(0, member.name.size() - 4));
    if (!read) return read.error();
    owners.push_back(bytes->owner);
    if (read->owner) owners.push_back(read->owner);
    entries.push_back(std::move(read->entry));
  }
  return TensorFile::of(zip.path(), std::move(entries), std::move(owners));
}

Result<TensorFile> open_npy(const std::string& path, const MappedFile& file) {
  auto read = read_npy(file.bytes(), path, std::filesystem::path(path).stem().string());
  if (!read) return read.error();
  std::vector<std::shared_ptr<const void>> owners = {file.owner()};
  if (read->owner) owners.push_back(read->owner);
  std::vector<TensorEntry> entries;
  entries.push_back(std::move(read->entry));
  return TensorFile::of(path, std::move(entries), std::move(owners));
}

}  // namespace

Result<TensorFile> open_dump(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  const auto bytes = mapped->bytes();
  try {
    if (is_npy(bytes)) return open_npy(path, *mapped);
    if (is_zip(bytes)) {
      auto zip = ZipFile::open(path, std::move(*mapped));
      if (!zip) return zip.error();
      return is_torch(*zip) ? open_torch(*zip) : open_npz(*zip);
    }
  } catch (const std::bad_alloc&) {
    return bad_input(path + ": not enough memory for what it says it holds");
  }
  // A pickle of version 2 or later; of safetensors these may be the length of the header, behind
  // which that begins.
  const bool safetensors = bytes.size() > 8 && bytes[8] == '{';
  if (bytes.size() > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 && !safetensors) {
    return bad_input(path + ": is a bare pickle, as torch.save() wrote before version 1.6",
                     "load it where it comes from and save it again, without "
                     "_use_new_zipfile_serialization=False");
  }
  return TensorFile::open(path);
}

}  // namespace attnscope
