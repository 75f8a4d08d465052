// An output beside its reference, as doubles, with the elements that are beyond their bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/trace/compare.h"

namespace attnscope {

// Row-major over all axes. Elements that a mask leaves out are never wrong.
struct WrongElements {
  std::vector<std::int64_t> shape;
  std::vector<double> value, reference;
  std::vector<std::uint8_t> wrong;
  std::int64_t elements = 0;  // that the mask leaves in
  std::int64_t count = 0;     // of them wrong

  std::int64_t columns() const { return shape.back(); }
  std::int64_t rows() const {
    return shape.back() > 0 ? static_cast<std::int64_t>(value.size()) / shape.back() : 0;
  }
  // Index along an axis of a flat element.
  std::int64_t place(std::int64_t element, std::size_t axis) const;
  // Elements from one place of an axis to the next.
  std::int64_t stride(std::size_t axis) const;
};

// Shapes must be equal, with at most kMostPatternElements; beyond that only the first places of the
// first axis are looked at.
inline constexpr std::int64_t kMostPatternElements = std::int64_t{1} << 22;
WrongElements wrong_elements(const as_tensor& value, const as_tensor& reference,
                             const TapMask& mask, const Tolerance& tolerance);

}  // namespace attnscope
