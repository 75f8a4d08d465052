// What formats of keys and values cost a model of dense attention and what they save: one text, run
// once over bf16 rows, then the last tokens of several lengths again over the same rows in each
// other format.
//
//   error    the output of attention, each layer given what it was given over bf16 rows: length of
//            the difference over length of the output, all layers and tokens together
//   carried  the hidden state behind the last layer, where each layer is given what the one before
//            made over rows in the format, likewise
//   changed  tokens, of those looked at, after which another one is sampled then
//
// Static scales are those that take the largest number of the first 128 rows to the largest code.
//
// Behind the formats come those in which first tokens keep 16 bits ("fp8_tensor+first32"), in
// layers that see all tokens: the caches and the table that attention of such a session reads
// (paged_params.h), the rows of codes beside them.
//
// Where it is asked for, then those in which keys and values of chosen tokens are made anew
// ("fp8_tensor+again32"): in each such layer the tokens that got the most attention from as many
// tokens as are looked at, those right before them. The layer's inputs of all tokens are kept,
// since any of them may be chosen; of the chosen ones keys and values are made once for the tokens
// looked at, and read in 16 bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/reports/study_progress.h"
#include "engine/config/scenario.h"
#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

struct CacheStudyOptions {
  std::vector<std::int64_t> lengths = {128, 512, 2048, 8192, 32768};  // ascending
  std::int64_t tokens = 16;        // that are looked at, the last ones of a length
  std::int64_t first_tokens = 32;  // that keep 16 bits in some formats; 0 = no such formats
  std::int64_t again_tokens = 0;   // made anew in some formats; 0 = no such formats
};

struct CacheStudyPoint {
  std::int64_t length = 0;
  double error = 0, largest = 0, carried = 0;  // largest: |difference| of one element of an output
  std::int64_t changed = 0;
  // Of rows that were made anew, keys and values apart: how many there are, and how many would have
  // other codes than before.
  std::int64_t made_anew = 0, other_codes = 0;
};

struct CacheStudyFormat {
  std::string name;                  // of the row format
  std::int64_t bytes_per_token = 0;  // of all layers, keys and values
  std::vector<CacheStudyPoint> points;
  std::int64_t first_tokens = 0;  // that have rows of 16 bits besides, or are made anew,
  std::int64_t first_bytes = 0;   // of so many bytes a token, of all layers
  // Where chosen tokens are made anew: inputs of layers kept of every token, and multiplications of
  // making the chosen ones once.
  std::int64_t input_bytes = 0, again_products = 0;

  // Of a request of so many tokens, in the mean.
  double bytes_at(std::int64_t length) const {
    const auto first = static_cast<double>(std::min(first_tokens, length) * first_bytes);
    return static_cast<double>(bytes_per_token + input_bytes) + first / static_cast<double>(length);
  }
  // At the longest length.
  double bytes() const {
    return points.empty() ? static_cast<double>(bytes_per_token) : bytes_at(points.back().length);
  }
};

struct CacheStudy {
  std::string model;
  std::int64_t tokens = 0;
  std::vector<CacheStudyFormat> formats;  // the first is bf16
};

// Whether the model and the lengths are what can be studied, before any work.
Result<void> fits_cache_study(const ModelConfig& config, const CacheStudyOptions& options);

// An error where the model is no dense one whose layers have rows of their own, in pages of whole
// requests, or where it has fewer positions than are asked for.
Result<CacheStudy> study_cache_formats(const Scenario& scenario, const CacheStudyOptions& options,
                                       const as_threads* threads,
                                       StudyProgress* progress = nullptr);

std::string cache_study_text(const CacheStudy& study);
std::string cache_study_csv(const CacheStudy& study);
nlohmann::json cache_study_json(const CacheStudy& study);
// Errors over the length, both logarithmic.
std::string cache_study_svg(const CacheStudy& study);

}  // namespace attnscope
