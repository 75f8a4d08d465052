#include "engine/tensorfile/element_type.h"

#include <array>

namespace attnscope {
namespace {

struct Entry {
  ElementType type;
  const char* name;
  int bits;
  std::int32_t dtype;  // -1 = none
};

constexpr std::array<Entry, 19> kEntries = {{
    {ElementType::kF64, "F64", 64, AS_F64},
    {ElementType::kF32, "F32", 32, AS_F32},
    {ElementType::kF16, "F16", 16, -1},
    {ElementType::kBf16, "BF16", 16, AS_BF16},
    {ElementType::kI64, "I64", 64, AS_I64},
    {ElementType::kI32, "I32", 32, AS_I32},
    {ElementType::kI16, "I16", 16, -1},
    {ElementType::kI8, "I8", 8, AS_U8},
    {ElementType::kU64, "U64", 64, -1},
    {ElementType::kU32, "U32", 32, -1},
    {ElementType::kU16, "U16", 16, -1},
    {ElementType::kU8, "U8", 8, AS_U8},
    {ElementType::kBool, "BOOL", 8, AS_U8},
    {ElementType::kF8E4m3, "F8_E4M3", 8, AS_U8},
    {ElementType::kF8E5m2, "F8_E5M2", 8, AS_U8},
    {ElementType::kF8E4m3Fnuz, "F8_E4M3FNUZ", 8, AS_U8},
    {ElementType::kF8E5m2Fnuz, "F8_E5M2FNUZ", 8, AS_U8},
    {ElementType::kF8E8m0, "F8_E8M0", 8, AS_U8},
    {ElementType::kF4, "F4", 4, -1},
}};

const Entry& entry(ElementType type) { return kEntries[static_cast<std::size_t>(type)]; }

}  // namespace

const char* element_name(ElementType type) { return entry(type).name; }
int element_bits(ElementType type) { return entry(type).bits; }

std::optional<ElementType> element_by_name(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (name == e.name) return e.type;
  }
  return std::nullopt;
}

std::string element_names() {
  std::string all;
  for (const Entry& e : kEntries) all += (all.empty() ? "" : ", ") + std::string(e.name);
  return all;
}

ElementType element_of(std::int32_t dtype) {
  switch (dtype) {
    case AS_F64:
      return ElementType::kF64;
    case AS_F32:
      return ElementType::kF32;
    case AS_BF16:
      return ElementType::kBf16;
    case AS_I32:
      return ElementType::kI32;
    case AS_I64:
      return ElementType::kI64;
    default:
      return ElementType::kU8;
  }
}

std::int32_t dtype_of(ElementType type) { return entry(type).dtype; }

}  // namespace attnscope
