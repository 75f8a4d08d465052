#include "engine/tensorfile/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/json_object.h"
#include "engine/tensorfile/pickle.h"

namespace attnscope {
namespace {

constexpr int kMostDepth = 32;
constexpr std::int64_t kMostVisits = std::int64_t{1} << 19;
constexpr std::size_t kMostNameBytes = std::size_t{1} << 26;  // of all names
constexpr std::int64_t kMostCopied = std::int64_t{1} << 24;   // elements that strides repeat

const ZipMember* find_pickle(const ZipFile& zip) {
  for (const ZipMember& m : zip.members()) {
    const std::size_t slash = m.name.find('/');
    if (m.name == "data.pkl") return &m;
    if (slash != std::string::npos && m.name.substr(slash + 1) == "data.pkl") return &m;
  }
  return nullptr;
}

class TorchReader {
 public:
  TorchReader(const ZipFile& zip, std::string prefix, Pickle pickle)
      : zip_(zip), prefix_(std::move(prefix)), pickle_(std::move(pickle)) {
    owners_.push_back(zip.owner());
  }

  Result<TensorFile> read() {
    if (auto ok = walk(pickle_.root, "", 0); !ok) return ok.error();
    return TensorFile::of(zip_.path(), std::move(entries_), std::move(owners_));
  }

 private:
  Error wrong(const std::string& name, const std::string& what) const {
    return bad_input(fmt::format("{}: tensor {}: {}", zip_.path(), shown_name(name), what),
                     "the file was damaged: save it again with torch.save()");
  }

  Result<void> walk(std::uint32_t at, const std::string& name, int depth) {
    name_bytes_ += name.size();
    if (depth > kMostDepth || ++visits_ > kMostVisits || name_bytes_ > kMostNameBytes) {
      return bad_input(
          fmt::format("{}: its dicts and lists are nested too deep, or hold themselves",
                      zip_.path()),
          "save one dict of names and tensors");
    }
    const PickleNode& node = pickle_.nodes[at];
    const auto below = [&](const std::string& key) {
      return name.empty() ? key : name + "." + key;
    };
    switch (node.kind) {
      case PickleKind::kTensor:
        return tensor(node, name.empty() ? "tensor" : name);
      case PickleKind::kList:
        for (std::size_t i = 0; i < node.items.size(); ++i) {
          if (auto ok = walk(node.items[i], below(std::to_string(i)), depth + 1); !ok) return ok;
        }
        return {};
      case PickleKind::kDict:
        for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
          const PickleNode& key = pickle_.nodes[node.items[i]];
          if (key.kind != PickleKind::kText && key.kind != PickleKind::kInt) {
            return bad_input(fmt::format("{}: a dict in {} has a key that is no text", zip_.path(),
                                         shown_name(name)),
                             "name tensors by texts");
          }
          const std::string text =
              key.kind == PickleKind::kText ? key.text : std::to_string(key.integer);
          if (auto ok = walk(node.items[i + 1], below(text), depth + 1); !ok) return ok;
        }
        return {};
      case PickleKind::kBool:
        return number(name, ElementType::kBool, &node.integer, 1);
      case PickleKind::kInt:
        return number(name, ElementType::kI64, &node.integer, 8);
      case PickleKind::kFloat:
        return number(name, ElementType::kF64, &node.real, 8);
      default:
        return {};  // a text, a type or nothing
    }
  }

  Result<void> number(const std::string& name, ElementType type, const void* value,
                      std::size_t bytes) {
    auto memory = std::make_shared<std::vector<std::uint8_t>>(bytes);
    std::memcpy(memory->data(), value, bytes);
    TensorEntry e;
    e.name = name.empty() ? "number" : name;
    e.type = type;
    e.elements = 1;
    e.bytes = bytes;
    e.data = memory->data();
    owners_.push_back(std::move(memory));
    entries_.push_back(std::move(e));
    return {};
  }

  Result<void> tensor(const PickleNode& node, const std::string& name) {
    const PickleNode& storage = pickle_.nodes[node.storage];
    const ZipMember* member = zip_.find(prefix_ + "data/" + storage.text);
    if (member == nullptr) return wrong(name, "its storage is not in the file");
    if (!member->stored) return wrong(name, "its storage is deflated, which torch does not do");
    const std::int64_t size = element_bits(node.type) / 8;
    const std::int64_t there = static_cast<std::int64_t>(member->bytes.size()) / size;
    TensorEntry e;
    e.name = name;
    e.type = node.type;
    e.shape = node.shape;
    e.elements = 1;
    for (const std::int64_t n : e.shape) {
      if (n != 0 && e.elements > (std::int64_t{1} << 40) / n) return wrong(name, "is too large");
      e.elements *= n;
    }
    e.bytes = static_cast<std::size_t>(e.elements * size);
    bool dense = true;
    std::int64_t last = node.integer, inner = 1;
    for (std::size_t a = e.shape.size(); e.elements > 0 && a-- > 0;) {
      const std::int64_t n = e.shape[a], stride = node.stride[a];
      if (n == 1) continue;
      dense = dense && stride == inner;
      inner *= n;
      if (last > there || stride > there / (n - 1)) {
        return wrong(name, "reaches beyond its storage");
      }
      last += (n - 1) * stride;
    }
    if (e.elements > 0 && last >= there) return wrong(name, "reaches beyond its storage");
    if (e.elements == 0 || dense) {
      e.data = member->bytes.data() + (e.elements == 0 ? 0 : node.integer * size);
    } else {
      // Storages may be shared by many views: what is copied is bounded by all of the file.
      copied_ += e.elements;
      if (copied_ > std::max(kMostCopied, file_bytes())) {
        return wrong(name, "strides repeat more values than the file holds; save it contiguous()");
      }
      e.data = copy(e, node, member->bytes.data());
    }
    entries_.push_back(std::move(e));
    return {};
  }

  std::int64_t file_bytes() const {
    std::uint64_t sum = 0;
    for (const ZipMember& m : zip_.members()) sum += m.bytes.size();
    return static_cast<std::int64_t>(sum);
  }

  const std::uint8_t* copy(const TensorEntry& e, const PickleNode& node, const std::uint8_t* from) {
    const auto size = static_cast<std::size_t>(element_bits(e.type) / 8);
    auto memory = std::make_shared<std::vector<std::uint8_t>>(e.bytes);
    std::vector<std::int64_t> at(e.shape.size());
    std::int64_t place = node.integer;
    for (std::int64_t i = 0; i < e.elements; ++i) {
      std::memcpy(memory->data() + static_cast<std::size_t>(i) * size,
                  from + static_cast<std::size_t>(place) * size, size);
      for (std::size_t a = at.size(); a-- > 0;) {
        place += node.stride[a];
        if (++at[a] < e.shape[a]) break;
        place -= node.stride[a] * e.shape[a];
        at[a] = 0;
      }
    }
    const std::uint8_t* data = memory->data();
    owners_.push_back(std::move(memory));
    return data;
  }

  const ZipFile& zip_;
  std::string prefix_;
  Pickle pickle_;
  std::int64_t visits_ = 0, copied_ = 0;
  std::size_t name_bytes_ = 0;
  std::vector<TensorEntry> entries_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace

bool is_torch(const ZipFile& zip) { return find_pickle(zip) != nullptr; }

Result<TensorFile> open_torch(const ZipFile& zip) {
  const ZipMember* member = find_pickle(zip);
  if (member == nullptr) return bad_input(zip.path() + ": has no data.pkl");
  const std::string prefix = member->name.substr(0, member->name.size() - 8);
  if (const ZipMember* order = zip.find(prefix + "byteorder")) {
    auto bytes = zip.read(*order);
    if (!bytes) return bytes.error();
    const std::string_view text(reinterpret_cast<const char*>(bytes->bytes.data()),
                                bytes->bytes.size());
    if (text != "little") {
      return bad_input(
          fmt::format("{}: its values are {} endian", zip.path(), shown_name(text.substr(0, 16))),
          "save it on a machine with little-endian numbers");
    }
  }
  auto bytes = zip.read(*member);
  if (!bytes) return bytes.error();
  auto pickle = read_pickle(bytes->bytes, zip.path());
  if (!pickle) return pickle.error();
  return TorchReader(zip, prefix, std::move(*pickle)).read();
}

}  // namespace attnscope
