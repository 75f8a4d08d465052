#include "engine/tensorfile/header_parser.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "engine/io/json_object.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestRank = 32;
const char* const kHeaderHint =
    "the file was damaged, or is no safetensors file: fetch or write it again";

// Walks the header without building a tree: it may hold a hundred thousand tensors.
class Walker : public json::json_sax_t {
 public:
  explicit Walker(const std::string& file) : file_(file) {}

  RawHeader take() { return std::move(header_); }
  const std::optional<Error>& error() const { return error_; }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTensorName:
        state_ = State::kTensor;
        has_type_ = has_shape_ = has_offsets_ = false;
        return true;
      case State::kMetadataName:
        state_ = State::kMetadata;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    switch (state_) {
      case State::kTop:
        if (name == "__metadata__") {
          if (has_metadata_) return fail("__metadata__ appears twice");
          has_metadata_ = true;
          state_ = State::kMetadataName;
          return true;
        }
        if (!names_.insert(name).second) {
          return fail(fmt::format("tensor {} appears twice", shown_name(name)));
        }
        header_.tensors.push_back({name, ElementType::kU8, {}, 0, 0});
        state_ = State::kTensorName;
        return true;
      case State::kMetadata:
        if (!header_.metadata.emplace(name, "").second) {
          return fail(fmt::format("__metadata__: {} appears twice", shown_name(name)));
        }
        metadata_key_ = name;
        state_ = State::kMetadataValue;
        return true;
      case State::kTensor:
        return tensor_key(name);
      default:
        return unexpected("a key");
    }
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      const char* missing = !has_type_      ? "dtype"
                            : !has_shape_   ? "shape"
                            : !has_offsets_ ? "data_offsets"
                                            : nullptr;
      if (missing != nullptr) return fail_tensor(fmt::format("{} is missing", missing));
      state_ = State::kTop;
    } else if (state_ == State::kMetadata) {
      state_ = State::kTop;
    } else {
      state_ = State::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      numbers_.clear();
      state_ = state_ == State::kShape ? State::kShapeNumbers : State::kOffsetNumbers;
      return true;
    }
    return unexpected("a list");
  }

  bool end_array() override {
    if (state_ == State::kShapeNumbers) {
      header_.tensors.back().shape = numbers_;
    } else {
      if (numbers_.size() != 2) {
        return fail_tensor(
            fmt::format("data_offsets has {} numbers, expected [begin, end]", numbers_.size()));
      }
      header_.tensors.back().begin = numbers_[0];
      header_.tensors.back().end = numbers_[1];
    }
    state_ = State::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t n) override {
    if (state_ == State::kShapeNumbers && numbers_.size() >= kLargestRank) {
      return fail_tensor(fmt::format("shape has more than {} dimensions", kLargestRank));
    }
    if (state_ == State::kOffsetNumbers && numbers_.size() >= 2) {
      return fail_tensor("data_offsets has more than two numbers, expected [begin, end]");
    }
    if (state_ == State::kShapeNumbers || state_ == State::kOffsetNumbers) {
      numbers_.push_back(n);
      return true;
    }
    return unexpected(fmt::format("{}", n));
  }
  bool number_integer(number_integer_t n) override { return not_whole(fmt::format("{}", n)); }
  bool number_float(number_float_t, const std::string& text) override {
    return not_whole(text.substr(0, 40));
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadataValue) {
      header_.metadata[metadata_key_] = text;
      state_ = State::kMetadata;
      return true;
    }
    if (state_ == State::kType) {
      const auto type = element_by_name(text);
      if (!type) {
        return fail_tensor(fmt::format("dtype {} is unknown, expected one of {}", shown_name(text),
                                       element_names()));
      }
      header_.tensors.back().type = *type;
      state_ = State::kTensor;
      return true;
    }
    return unexpected("a text");
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool parse_error(std::size_t at, const std::string&, const json::exception&) override {
    return fail(fmt::format("the header is not JSON: stopped at byte {} of it", at));
  }

  Error failed(std::string what) const {
    return bad_input(file_ + ": " + std::move(what), kHeaderHint);
  }

 private:
  enum class State {
    kStart,
    kTop,
    kMetadataName,  // after the key, before its object
    kMetadata,
    kMetadataValue,
    kTensorName,
    kTensor,
    kType,
    kShape,
    kShapeNumbers,
    kOffsets,
    kOffsetNumbers,
    kEnd,
  };

  bool tensor_key(const std::string& name) {
    bool* seen = name == "dtype"          ? &has_type_
                 : name == "shape"        ? &has_shape_
                 : name == "data_offsets" ? &has_offsets_
                                          : nullptr;
    if (seen == nullptr) {
      return fail_tensor(
          fmt::format("unknown key {}, expected dtype, shape and data_offsets", shown_name(name)));
    }
    if (*seen) return fail_tensor(fmt::format("{} appears twice", name));
    *seen = true;
    state_ = seen == &has_type_    ? State::kType
             : seen == &has_shape_ ? State::kShape
                                   : State::kOffsets;
    return true;
  }

  bool not_whole(const std::string& text) {
    if (state_ == State::kShapeNumbers || state_ == State::kOffsetNumbers) {
      return fail_tensor(fmt::format("{} holds {}, expected whole numbers from 0 to 2^63 - 1",
                                     state_ == State::kShapeNumbers ? "shape" : "data_offsets",
                                     text));
    }
    return unexpected(text);
  }

  bool unexpected(const std::string& what) {
    switch (state_) {
      case State::kStart:
      case State::kEnd:
      case State::kTop:
        return fail("the header is " + what + ", expected an object of tensors");
      case State::kMetadataName:
      case State::kMetadata:
        return fail("__metadata__ is " + what + ", expected an object of texts");
      case State::kMetadataValue:
        return fail(fmt::format("__metadata__: {} is {}, expected a text",
                                shown_name(metadata_key_), what));
      case State::kTensorName:
        return fail_tensor("is " + what + ", expected an object");
      case State::kType:
        return fail_tensor("dtype is " + what + ", expected a text");
      case State::kShape:
      case State::kShapeNumbers:
        return fail_tensor("shape holds " + what + ", expected a list of whole numbers");
      default:
        return fail_tensor("data_offsets holds " + what + ", expected [begin, end]");
    }
  }

  bool fail_tensor(const std::string& what) {
    return fail(fmt::format("tensor {}: {}", shown_name(header_.tensors.back().name), what));
  }
  bool fail(std::string what) {
    if (!error_) error_ = failed(std::move(what));
    return false;
  }

  const std::string& file_;
  State state_ = State::kStart;
  RawHeader header_;
  std::unordered_set<std::string> names_;
  std::vector<std::uint64_t> numbers_;
  std::string metadata_key_;
  bool has_metadata_ = false, has_type_ = false, has_shape_ = false, has_offsets_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<RawHeader> parse_header(std::string_view text, const std::string& file) {
  Walker walker(file);
  const bool ok = json::sax_parse(text.begin(), text.end(), &walker);
  if (walker.error()) return *walker.error();
  if (!ok) return walker.failed("the header is not JSON");
  return walker.take();
}

}  // namespace attnscope
