// Whole captures from the dumps of other engines, by a map (import_map.h): every op of every layer
// and step whose inputs are there, so that show, the app and diff look at them as at our own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/capture/capture_writer.h"
#include "engine/opcase/case_run.h"
#include "engine/opcase/import_map.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

struct ImportedRequest {
  std::string name;
  std::int64_t prompt_tokens = -1;  // -1: up to the last step that computed several tokens of it
};

struct ImportCaptureOptions {
  ModelConfig model;
  // By row of the other engine's tables; further ones are named "request N".
  std::vector<ImportedRequest> requests;
  std::string program;  // that imports
  // Runs the reference on the op's own inputs, its values kept; empty = ops are not judged.
  std::function<Result<CaseRun>(const OpCase&)> judge;
};

// An op whose inputs are there and that a capture has no place for: a helper op, which stands for
// part of an op or for one in another form. It is judged all the same.
struct LeftOutOp {
  std::int64_t step = 0;
  int layer = -1;              // published
  std::string name;            // of the helper op
  std::optional<CaseRun> run;  // none: not judged
  std::string why_not;         // where it could not be
};

struct ImportedCapture {
  CaptureTotals totals;
  std::int64_t ops = 0;
  std::vector<TapResult> results;  // of the ops that could be judged, in causal order
  std::vector<std::string> notes;
  std::vector<LeftOutOp> left_out;          // in the order of steps and layers
  std::vector<std::string> contradictions;  // between ops (import_wires.h), where they are judged
};

// Files belong to one step until a file repeats a tensor's name: the next step begins with it.
std::vector<std::vector<TensorFile>> steps_of_dump(std::vector<TensorFile> files);

// Of a step are known: the tokens' positions and requests as its ops have them (else 0, 1, .. of
// one request), their ids where the map names them, and the blocks that tables, slots and lists
// show; no scheduling.
// AS_BAD_INPUT names step, layer and op.
Result<ImportedCapture> import_capture(const ImportMap& map,
                                       const std::vector<std::vector<TensorFile>>& steps,
                                       const ImportCaptureOptions& options,
                                       const std::string& path);

}  // namespace attnscope
