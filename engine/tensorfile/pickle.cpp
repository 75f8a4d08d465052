#include "engine/tensorfile/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/io/json_object.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostNodes = std::size_t{1} << 22;
constexpr std::size_t kMostTensorAxes = 32;

struct StorageType {
  const char* name;
  ElementType type;
};
constexpr StorageType kStorages[] = {
    {"torch DoubleStorage", ElementType::kF64}, {"torch FloatStorage", ElementType::kF32},
    {"torch HalfStorage", ElementType::kF16},   {"torch BFloat16Storage", ElementType::kBf16},
    {"torch LongStorage", ElementType::kI64},   {"torch IntStorage", ElementType::kI32},
    {"torch ShortStorage", ElementType::kI16},  {"torch CharStorage", ElementType::kI8},
    {"torch ByteStorage", ElementType::kU8},    {"torch BoolStorage", ElementType::kBool}};
constexpr StorageType kTorchTypes[] = {{"torch float64", ElementType::kF64},
                                       {"torch float32", ElementType::kF32},
                                       {"torch float16", ElementType::kF16},
                                       {"torch bfloat16", ElementType::kBf16},
                                       {"torch int64", ElementType::kI64},
                                       {"torch int32", ElementType::kI32},
                                       {"torch int16", ElementType::kI16},
                                       {"torch int8", ElementType::kI8},
                                       {"torch uint64", ElementType::kU64},
                                       {"torch uint32", ElementType::kU32},
                                       {"torch uint16", ElementType::kU16},
                                       {"torch uint8", ElementType::kU8},
                                       {"torch bool", ElementType::kBool},
                                       {"torch float8_e4m3fn", ElementType::kF8E4m3},
                                       {"torch float8_e5m2", ElementType::kF8E5m2},
                                       {"torch float8_e4m3fnuz", ElementType::kF8E4m3Fnuz},
                                       {"torch float8_e5m2fnuz", ElementType::kF8E5m2Fnuz},
                                       {"torch float8_e8m0fnu", ElementType::kF8E8m0}};
constexpr const char* kUntyped = "torch.storage UntypedStorage";
constexpr const char* kTensor2 = "torch._utils _rebuild_tensor_v2";
constexpr const char* kTensor3 = "torch._utils _rebuild_tensor_v3";
constexpr const char* kParameter = "torch._utils _rebuild_parameter";
constexpr const char* kOrdered = "collections OrderedDict";
constexpr const char* kSize = "torch Size";

template <std::size_t N>
const StorageType* find_type(const StorageType (&among)[N], std::string_view name) {
  for (const StorageType& t : among) {
    if (name == t.name) return &t;
  }
  return nullptr;
}

bool is_known_global(std::string_view name) {
  for (const char* known : {kUntyped, kTensor2, kTensor3, kParameter, kOrdered, kSize}) {
    if (name == known) return true;
  }
  return find_type(kStorages, name) != nullptr || find_type(kTorchTypes, name) != nullptr;
}

class PickleReader {
 public:
  PickleReader(std::span<const std::uint8_t> bytes, const std::string& path)
      : bytes_(bytes), path_(path) {}

  Result<Pickle> read() {
    while (error_.message.empty()) {
      if (at_ == bytes_.size()) return cut_off();
      const std::uint8_t op = bytes_[at_++];
      if (op == '.') {
        if (stack_.size() != 1 || !marks_.empty()) return damaged("ends in the middle of a value");
        out_.root = stack_.back();
        return std::move(out_);
      }
      step(op);
      if (out_.nodes.size() > kMostNodes) {
        return bad_input(fmt::format("{}: its pickle has more than {} values", path_, kMostNodes),
                         "save tensors, not lists of numbers");
      }
    }
    return error_;
  }

 private:
  Error damaged(const std::string& what) const {
    return bad_input(fmt::format("{}: its pickle {} at byte {}", path_, what, at_),
                     "the file was damaged: save it again with torch.save()");
  }
  Error cut_off() const {
    return bad_input(path_ + ": its pickle is cut off", "save it again with torch.save()");
  }
  void fail(const std::string& what) {
    if (error_.message.empty()) error_ = damaged(what);
  }

  std::span<const std::uint8_t> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      if (error_.message.empty()) error_ = cut_off();
      return {};
    }
    const auto out = bytes_.subspan(at_, count);
    at_ += count;
    return out;
  }
  std::uint64_t little(int width) {
    std::uint64_t n = 0;
    const auto bytes = take(static_cast<std::uint64_t>(width));
    for (std::size_t i = bytes.size(); i-- > 0;) n = n << 8 | bytes[i];
    return n;
  }
  std::string text(std::uint64_t count) {
    const auto bytes = take(count);
    return {bytes.begin(), bytes.end()};
  }
  std::string line() {
    const std::size_t begin = at_;
    while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
    std::string out(bytes_.begin() + static_cast<std::ptrdiff_t>(begin),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
    take(1);
    return out;
  }

  void push(PickleNode node) {
    stack_.push_back(static_cast<std::uint32_t>(out_.nodes.size()));
    out_.nodes.push_back(std::move(node));
  }
  void push_integer(std::int64_t n) {
    PickleNode node;
    node.kind = PickleKind::kInt;
    node.integer = n;
    push(std::move(node));
  }
  void push_text(std::string text_of) {
    PickleNode node;
    node.kind = PickleKind::kText;
    node.text = std::move(text_of);
    push(std::move(node));
  }
  std::optional<std::uint32_t> pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      fail("takes a value that is not there");
      return std::nullopt;
    }
    const std::uint32_t node = stack_.back();
    stack_.pop_back();
    return node;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) {
      fail("takes values to a mark that is not there");
      return {};
    }
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> items(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_list(std::vector<std::uint32_t> items, PickleKind kind = PickleKind::kList) {
    PickleNode node;
    node.kind = kind;
    node.items = std::move(items);
    push(std::move(node));
  }
  void push_tuple(int count) {
    std::vector<std::uint32_t> items(static_cast<std::size_t>(count));
    for (std::size_t i = items.size(); i-- > 0;) {
      const auto item = pop();
      if (!item) return;
      items[i] = *item;
    }
    push_list(std::move(items));
  }
  void extend(const std::vector<std::uint32_t>& items, PickleKind kind) {
    if (!error_.message.empty()) return;
    if (stack_.empty() || out_.nodes[stack_.back()].kind != kind ||
        (kind == PickleKind::kDict && items.size() % 2 != 0)) {
      fail("adds to a value that takes none");
      return;
    }
    auto& to = out_.nodes[stack_.back()].items;
    to.insert(to.end(), items.begin(), items.end());
  }

  void push_global(const std::string& module, const std::string& name) {
    std::string full = module + " " + name;
    if (!error_.message.empty()) return;
    if (!is_known_global(full)) {
      error_ = bad_input(
          fmt::format("{}: its pickle calls {}, which tensors do not need: nothing of it was run",
                      path_, shown_name(module + "." + name)),
          "save a dict of names and plain tensors: torch.save({\"layers.0.q\": q.detach().cpu()}, "
          "FILE)");
      return;
    }
    PickleNode node;
    node.kind = PickleKind::kGlobal;
    node.text = std::move(full);
    push(std::move(node));
  }

  const PickleNode* item(const PickleNode& of, std::size_t i, PickleKind kind) const {
    if (i >= of.items.size()) return nullptr;
    const PickleNode& node = out_.nodes[of.items[i]];
    return node.kind == kind ? &node : nullptr;
  }

  // ('storage', its type, key, device, elements)
  void push_storage() {
    const auto id = pop();
    if (!id) return;
    const PickleNode& tuple = out_.nodes[*id];
    const PickleNode* word = item(tuple, 0, PickleKind::kText);
    const PickleNode* type = item(tuple, 1, PickleKind::kGlobal);
    const PickleNode* key = item(tuple, 2, PickleKind::kText);
    const PickleNode* count = item(tuple, 4, PickleKind::kInt);
    if (tuple.kind != PickleKind::kList || word == nullptr || word->text != "storage" ||
        type == nullptr || key == nullptr || count == nullptr || count->integer < 0) {
      fail("names a storage that is none");
      return;
    }
    PickleNode node;
    node.kind = PickleKind::kStorage;
    node.text = key->text;
    node.integer = count->integer;
    node.untyped = type->text == kUntyped;
    if (const StorageType* known = find_type(kStorages, type->text)) {
      node.type = known->type;
    } else if (!node.untyped) {
      fail("names a storage of no type");
      return;
    }
    push(std::move(node));
  }

  bool integers(const PickleNode& list, std::vector<std::int64_t>& out) const {
    if (list.items.size() > kMostTensorAxes) return false;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const PickleNode* n = item(list, i, PickleKind::kInt);
      if (n == nullptr || n->integer < 0) return false;
      out.push_back(n->integer);
    }
    return true;
  }

  // (storage, offset, shape, stride, requires_grad, hooks[, dtype of v3])
  void push_tensor(std::uint32_t arguments, bool has_type) {
    const PickleNode& of = out_.nodes[arguments];
    const PickleNode* storage = item(of, 0, PickleKind::kStorage);
    const PickleNode* offset = item(of, 1, PickleKind::kInt);
    const PickleNode* shape = item(of, 2, PickleKind::kList);
    const PickleNode* stride = item(of, 3, PickleKind::kList);
    const PickleNode* type = has_type ? item(of, 6, PickleKind::kGlobal) : nullptr;
    const StorageType* known = type != nullptr ? find_type(kTorchTypes, type->text) : nullptr;
    PickleNode node;
    node.kind = PickleKind::kTensor;
    if (storage == nullptr || offset == nullptr || offset->integer < 0 || shape == nullptr ||
        stride == nullptr || (has_type && known == nullptr) || (!has_type && storage->untyped) ||
        !integers(*shape, node.shape) || !integers(*stride, node.stride) ||
        node.shape.size() != node.stride.size()) {
      fail("has a tensor without sound storage, shape and stride");
      return;
    }
    node.storage = of.items[0];
    node.integer = offset->integer;
    node.type = known != nullptr ? known->type : storage->type;
    push(std::move(node));
  }

  void reduce() {
    const auto arguments = pop(), function = pop();
    if (!arguments || !function) return;
    if (out_.nodes[*function].kind != PickleKind::kGlobal ||
        out_.nodes[*arguments].kind != PickleKind::kList) {
      fail("calls what is no function");
      return;
    }
    const std::string& name = out_.nodes[*function].text;
    const auto& given = out_.nodes[*arguments].items;
    if (name == kTensor2 || name == kTensor3) {
      push_tensor(*arguments, name == kTensor3);
    } else if ((name == kParameter || name == kSize) && !given.empty()) {
      stack_.push_back(given[0]);
    } else if (name == kOrdered && given.empty()) {
      push_list({}, PickleKind::kDict);
    } else {
      fail("calls a function with other arguments than tensors have");
    }
  }

  void step(std::uint8_t op) {
    PickleNode node;
    switch (op) {
      case 0x80:  // PROTO
        take(1);
        break;
      case 0x95:  // FRAME
        take(8);
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'N':
        push(std::move(node));
        break;
      case 0x88:
      case 0x89:  // True, False
        node.kind = PickleKind::kBool;
        node.integer = op == 0x88 ? 1 : 0;
        push(std::move(node));
        break;
      case 'J':
        push_integer(static_cast<std::int32_t>(little(4)));
        break;
      case 'K':
        push_integer(static_cast<std::int64_t>(little(1)));
        break;
      case 'M':
        push_integer(static_cast<std::int64_t>(little(2)));
        break;
      case 0x8a: {  // LONG1: two's complement
        const std::uint64_t count = little(1);
        if (count > 8) return fail("has an integer beyond 64 bits");
        std::uint64_t n = little(static_cast<int>(count));
        if (count > 0 && count < 8 && (n >> (8 * count - 1) & 1) != 0) n |= ~0ULL << 8 * count;
        push_integer(static_cast<std::int64_t>(n));
        break;
      }
      case 'G': {  // big endian
        std::uint64_t n = 0;
        for (const std::uint8_t b : take(8)) n = n << 8 | b;
        node.kind = PickleKind::kFloat;
        node.real = std::bit_cast<double>(n);
        push(std::move(node));
        break;
      }
      case 'X':
      case 'T':
      case 'B':
        push_text(text(little(4)));
        break;
      case 0x8c:
      case 'U':
      case 'C':
        push_text(text(little(1)));
        break;
      case ')':
      case ']':
        push_list({});
        break;
      case '}':
        push_list({}, PickleKind::kDict);
        break;
      case 't':
      case 'l':
        push_list(pop_to_mark());
        break;
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple(op - 0x84);
        break;
      case 'a': {
        const auto value = pop();
        if (value) extend({*value}, PickleKind::kList);
        break;
      }
      case 'e':
        extend(pop_to_mark(), PickleKind::kList);
        break;
      case 's': {
        const auto value = pop(), key = pop();
        if (value && key) extend({*key, *value}, PickleKind::kDict);
        break;
      }
      case 'u':
        extend(pop_to_mark(), PickleKind::kDict);
        break;
      case 'q':
        keep(little(1));
        break;
      case 'r':
        keep(little(4));
        break;
      case 0x94:  // MEMOIZE
        keep(memo_.size());
        break;
      case 'h':
        get(little(1));
        break;
      case 'j':
        get(little(4));
        break;
      case 'c': {
        const std::string module = line();
        push_global(module, line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const auto name = pop(), module = pop();
        if (!name || !module) return;
        if (out_.nodes[*name].kind != PickleKind::kText ||
            out_.nodes[*module].kind != PickleKind::kText) {
          return fail("names a function without a text");
        }
        push_global(out_.nodes[*module].text, out_.nodes[*name].text);
        break;
      }
      case 'Q':
        push_storage();
        break;
      case 'R':
        reduce();
        break;
      case 'b': {  // BUILD: attributes of a state dict, which no tensor needs
        pop();
        if (stack_.empty() || out_.nodes[stack_.back()].kind != PickleKind::kDict) {
          fail("sets the attributes of what is no dict");
        }
        break;
      }
      default:
        --at_;
        fail(fmt::format("has the instruction 0x{:02x}, which tensors do not need,", op));
    }
  }

  void keep(std::uint64_t key) {
    if (stack_.empty()) return fail("keeps a value that is not there");
    memo_[key] = stack_.back();
  }
  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return fail("asks for a value that it did not keep");
    stack_.push_back(found->second);
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
  Pickle out_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
  Error error_;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::uint8_t> bytes, const std::string& path) {
  return PickleReader(bytes, path).read();
}

}  // namespace attnscope
