// Reads zip archives such as torch.save() and numpy.savez() write: the members that are stored as
// they are lie in the mapped file and cost nothing until somebody reads them. Sizes and places are
// checked when the archive is opened; nothing of it is written anywhere.
//
//   auto zip = ZipFile::open(path, mapped);
//   if (const ZipMember* m = zip->find("x.npy")) auto bytes = zip->read(*m);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/io/mapped_file.h"
#include "kernels/params/result.h"

namespace attnscope {

struct ZipMember {
  std::string name;
  std::span<const std::uint8_t> bytes;  // as they lie in the file
  std::uint64_t size = 0;               // of what they stand for
  bool stored = true;                   // else deflated
};

// Bytes of a member: in the mapping, or in memory of their own.
struct ZipBytes {
  std::span<const std::uint8_t> bytes;
  std::shared_ptr<const void> owner;
};

bool is_zip(std::span<const std::uint8_t> bytes);

class ZipFile {
 public:
  // AS_BAD_INPUT where the directory is damaged, members lie outside of the file, have one name,
  // or are encrypted.
  static Result<ZipFile> open(const std::string& path, MappedFile file);

  const std::vector<ZipMember>& members() const { return members_; }
  const ZipMember* find(std::string_view name) const;  // nullptr = not there
  // Inflated where it is deflated, which takes libarchive (AS_NO_ENVIRONMENT without it).
  Result<ZipBytes> read(const ZipMember& member) const;
  const std::string& path() const { return path_; }
  const std::shared_ptr<const void>& owner() const { return file_.owner(); }

 private:
  std::string path_;
  MappedFile file_;
  std::vector<ZipMember> members_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace attnscope
