// Cache rows byte by byte: which field a byte belongs to, what an element's code and scale mean,
// what was saturated or lost, what differs from the reference.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/place.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

const char* record_name(std::int32_t record);  // "latent row", "index key (FP8)", ..

// Bytes of one row in logical form: payload, then scales.
struct RecordBytes {
  std::int32_t record = AS_RECORD_NONE;
  std::int32_t width = 0;
  std::span<const std::uint8_t> bytes;
  std::int32_t heads = 1;
  std::span<const float> beside = {};  // scales beside the cache, where its rows have such
};

// What a byte belongs to.
struct ByteField {
  std::int32_t kind = AS_FIELD_PADDING;  // as_field_kind
  std::int32_t code = AS_CODE_NONE;      // as_code that is stored
  std::int64_t dim = -1;    // first element it holds (a part of); of a scale: the first it scales
  std::int64_t dims = 0;    // elements held (2 for a pair of e2m1) or scaled
  std::int64_t first = 0;   // first byte of the field
  std::int64_t length = 1;  // bytes of the field
};
// Elements of head h are counted from h * width / heads on.
ByteField field_of_byte(std::int32_t record, std::int32_t width, std::int64_t byte,
                        std::int32_t heads = 1);
// "e4m3", "UE8M0 scale", "zero point", "padding"
std::string field_name(const ByteField& field);
// First byte of an element, of its scale and its zero point (-1: it has none).
struct ElementBytes {
  std::int64_t payload = -1, scale = -1, zero = -1;
};
ElementBytes bytes_of_dim(std::int32_t record, std::int32_t width, std::int64_t dim,
                          std::int32_t heads = 1);

struct DecodedElement {
  std::int32_t code_kind = AS_CODE_NONE;  // as_code
  std::uint32_t code = 0;
  double code_value = 0;  // before the scale
  bool scaled = false;
  int scale_exponent = 0;                  // scale = 2^exponent
  std::int32_t scale_kind = AS_CODE_NONE;  // as_code
  std::uint32_t scale_code = 0;
  double scale = 1;
  bool beside = false;  // that is no part of the row
  double zero_point = 0;
  double value = 0;        // NaN where its scale is beside the cache and not known
  bool saturated = false;  // |code| is the largest there is
  bool zero = false;
};
DecodedElement decode_element(const RecordBytes& row, std::int64_t dim);
// "0x3a = 1.25 (e4m3) x 2^-9 (UE8M0 0x76) = 2.441e-3"
std::string element_words(const DecodedElement& element);
// One field: "0x3a e4m3 1.25", "UE8M0 0x76 = 2^-9 scales dims 0-63".
std::string field_words(const RecordBytes& row, std::int64_t byte);

struct RecordStats {
  bool poisoned = false;  // every byte is 0xFF: never written
  std::int64_t saturated = 0;
  std::int64_t zeros = 0;       // quantised elements that are 0
  std::int64_t underflow = -1;  // of those, not 0 before quantisation; -1 = not known
  std::int64_t nan = 0;
  std::int64_t differing = -1;  // bytes that are not the reference's; -1 = no reference
  std::int64_t first_difference = -1;
  int lowest_scale = 0, highest_scale = 0;  // exponents
  std::int64_t scales = 0;
};
// reference: ref.sim's bytes, empty = none. before: values before quantisation, empty = unknown.
RecordStats record_stats(const RecordBytes& row, std::span<const std::uint8_t> reference,
                         std::span<const double> before);

// One scale and the elements that share it.
struct ScaleGroup {
  std::int64_t byte = 0;  // of the scale
  std::int64_t first_dim = 0, dims = 0;
  std::uint32_t code = 0;
  int exponent = 0;
  double largest = 0;  // |value| of the group
  std::int64_t saturated = 0, zeros = 0;
};
std::vector<ScaleGroup> scale_groups(const RecordBytes& row);

// Values that row `row` of `rows` was quantised from: ref.sim's where it ran, or the engine's own;
// empty = not kept.
enum class ValuesOf { kReference, kEngine };
std::vector<double> values_before(const StepTrace& step, const OpTrace& op, const RowsCopy& rows,
                                  std::int64_t row, ValuesOf whose = ValuesOf::kReference);

// A row of one layer's page inside a block, in logical form; empty outside the bytes given.
std::vector<std::uint8_t> row_of_page(const CacheSpec& spec, const std::vector<std::uint8_t>& block,
                                      std::int32_t row);

// The scales beside a layer's cache ("k_cache", "v_cache") that the op which writes it was given;
// empty where it has none, or they are not kept. layer: as published.
std::vector<float> scales_beside_cache(const StepTrace& step, int layer, std::string_view cache);

// "slot 10 496: block 41, row 0"
std::string slot_text(std::int64_t slot, std::int32_t rows_per_block);
// The sentence over one row. place: "slot .. of SWA-a, token 2051"; against: a reference was there.
std::string bytes_sentence(const RecordBytes& row, const RecordStats& stats,
                           const std::string& place);

}  // namespace attnscope
