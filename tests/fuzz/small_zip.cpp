#include "tests/fuzz/small_zip.h"

#include <cstdint>

namespace attnscope::fuzz {
namespace {

void put(std::string& out, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// Flags, method, time, date, checksum (which nobody asks for) and sizes of a member.
void put_member(std::string& out, const std::string& name, const std::string& bytes) {
  put(out, 20, 2);
  out.append(14 - 2, '\0');
  put(out, bytes.size(), 4);
  put(out, bytes.size(), 4);
  put(out, name.size(), 2);
  put(out, 0, 2);
}

}  // namespace

std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out, directory;
  for (const auto& [name, bytes] : members) {
    const std::size_t at = out.size();
    put(out, 0x04034b50, 4);
    put_member(out, name, bytes);
    out += name + bytes;
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    put_member(directory, name, bytes);
    directory.append(2 + 2 + 2 + 4, '\0');
    put(directory, at, 4);
    directory += name;
  }
  const std::size_t at = out.size();
  out += directory;
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, members.size(), 2);
  put(out, members.size(), 2);
  put(out, directory.size(), 4);
  put(out, at, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace attnscope::fuzz
