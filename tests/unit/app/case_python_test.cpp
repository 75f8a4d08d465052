// Cases as Python scripts: the script reads them by itself, calls a function and judges its outputs
// as the program does. Needs python3; numpy where something is computed (./attnscope test installs
// python3-numpy; under .ci/run its absence is a failure).
#include "app/reports/case_python.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "engine/opcase/case_file.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace case_python_test {

class CasePythonTest : public CliTest {
 protected:
  // ATTNSCOPE_PYTHON chooses one. Else the first that has numpy: the system's is not always the
  // first of the path.
  static const std::string& interpreter() {
    static const std::string found = [] {
      if (const char* chosen = std::getenv("ATTNSCOPE_PYTHON")) return std::string(chosen);
      for (const char* one : {"python3", "/usr/bin/python3"}) {
        if (call(std::string(one) + " -c 'import numpy'").code == 0) return std::string(one);
      }
      return std::string("python3");
    }();
    return found;
  }
  static Outcome python(const std::string& arguments) {
    return call(interpreter() + " " + arguments);
  }
  static Outcome call(const std::string& program) {
    const std::string command = program + " 2>&1";
    std::string text;
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "", ""};
    std::array<char, 4096> part{};
    while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr) {
      text += part.data();
    }
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text, ""};
  }
  static bool has(const std::string& module) {
    return python("-c 'import " + module + "'").code == 0;
  }
  // Saves and exports a case of `early`; the script's path.
  std::string exported(const std::string& place, const std::string& name) const {
    const Outcome done = run({"case", "export", "--python", early_case(place, name), "--force"});
    EXPECT_EQ(done.code, 0) << done.err;
    return path(name + ".py");
  }
};

TEST_F(CasePythonTest, ExportSaysWhatItNeeds) {
  const std::string script = exported("1/1/residual", "residual");
  EXPECT_EQ(run({"case", "export", path("residual.json")}).code, 2);
  EXPECT_EQ(run({"case", "export", "--python", path("none.json")}).code, 3);
  ASSERT_TRUE(has("sys")) << "no python3 here";
  const Outcome shown = python(script);
  if (has("numpy")) {
    EXPECT_EQ(shown.code, 0) << shown.out;
    EXPECT_NE(shown.out.find("residual, from early, outputs of lane cpu"), std::string::npos);
  } else {
    EXPECT_EQ(shown.code, 4) << shown.out;
    EXPECT_NE(shown.out.find("pip install numpy"), std::string::npos);
  }
}

TEST_F(CasePythonTest, AScriptThatWouldAllowMoreIsNamed) {
  const Tolerances tolerances = *Tolerances::load();
  const auto check = [&](const std::string& place, const std::string& from, const std::string& to,
                         const std::string& says) {
    const std::string file = exported(place, "c");
    std::string script = read(file);
    const OpCase kept = *read_case(path("c.json"));
    EXPECT_EQ(script_fault(script, kept, tolerances), "");
    const std::size_t at = script.find(from, script.find("RULES = "));
    ASSERT_NE(at, std::string::npos) << from;
    script.replace(at, from.size(), to);
    const std::string fault = script_fault(script, kept, tolerances);
    EXPECT_NE(fault.find(says), std::string::npos) << fault;
  };
  check("1/1/sparse_attention", "\"abs\": 0.0", "\"abs\": 1.0", "abs of o is 1.0");
  check("1/1/sparse_attention", "\"class\": \"lse\"", "\"class\": \"dense\"",
        "lse is of class dense, not lse");
  check("1/1/sparse_attention", "\"lse\": {", "\"other\": {", "lse has no rule");
  check("1/1/indexer_logits", "\"lens\": \"lens\"", "\"lends\": 1", "logits has no mask");
}

TEST_F(CasePythonTest, AFunctionIsJudgedByTheTolerances) {
  ASSERT_TRUE(has("numpy")) << "no numpy here: install python3-numpy";
  const std::string script = exported("1/1/residual", "residual");
  const std::string functions = write("functions.py",
                                      "def run(case):\n"
                                      "    return {'out': case['h'] + case['y']}\n"
                                      "def loses_y(case):\n"
                                      "    return {'out': case['h']}\n"
                                      "def wrong_name(case):\n"
                                      "    return {'o': case['h']}\n"
                                      "def wrong_shape(case):\n"
                                      "    return {'out': case['h'][:1]}\n");
  const Outcome right = python(script + " " + functions);
  EXPECT_EQ(right.code, 0) << right.out;
  const Outcome wrong = python(script + " " + functions + ":loses_y");
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  EXPECT_NE(wrong.out.find("beyond; at ("), std::string::npos) << wrong.out;
  EXPECT_EQ(python(script + " " + functions + ":wrong_name").code, 2);
  EXPECT_EQ(python(script + " " + functions + ":wrong_shape").code, 1);
  EXPECT_EQ(python(script + " " + functions + ":nobody").code, 2);
  EXPECT_EQ(python(script + " --case " + path("none.json")).code, 3);
  // Another call of this op, and one of another op.
  const std::string another = exported("2/1/residual", "another");
  EXPECT_EQ(python(script + " " + functions + " --case " + path("another.json")).code, 0);
  exported("1/1/attn_norm", "norm");
  for (const std::string& function : {functions, std::string()}) {
    const Outcome other =
        python(fmt::format("{} {} --case {}", script, function, path("norm.json")));
    EXPECT_EQ(other.code, 2) << other.out;
    EXPECT_NE(other.out.find("is a call of attn_norm, and this script judges residual"),
              std::string::npos)
        << other.out;
    EXPECT_EQ(other.out.find("Traceback"), std::string::npos) << other.out;
  }
}

// The attention of the paper in ten lines, on rows that the script finds by slot and decodes.
TEST_F(CasePythonTest, AttentionOverPagedRowsInNumpy) {
  ASSERT_TRUE(has("numpy")) << "no numpy here: install python3-numpy";
  const std::string script = exported("3/1/sparse_attention", "attention");
  const std::string functions =
      write("attention_of_mine.py",
            "import numpy as np\n"
            "def run(case, sink=1):\n"
            "    def rows(name, indices, lens):\n"
            "        slots = case[indices].copy()\n"
            "        slots[np.arange(slots.shape[1]) >= case[lens][:, None]] = -1\n"
            "        return case.cache(name).at(slots), slots >= 0\n"
            "    parts = [rows('cache', 'indices', 'topk_length')]\n"
            "    if 'extra_indices' in case:\n"
            "        parts.append(rows('extra_cache', 'extra_indices', 'extra_topk_length'))\n"
            "    kv = np.concatenate([p[0] for p in parts], axis=1).astype(np.float64)\n"
            "    valid = np.concatenate([p[1] for p in parts], axis=1)\n"
            "    logits = np.einsum('thd,tkd->thk', case['q'].astype(np.float64), kv)\n"
            "    logits = np.where(valid[:, None], logits * case.numbers['scale'], -np.inf)\n"
            "    e = np.exp(logits)\n"
            "    total = e.sum(axis=2)\n"
            "    all = total + sink * np.exp(case['sinks'])[None]\n"
            "    o = np.einsum('thk,tkd->thd', e, kv) / all[..., None]\n"
            "    return {'o': o, 'lse': np.log(total)}\n"
            "def without_sink(case):\n"
            "    return run(case, 0)\n");
  const Outcome right = python(script + " " + functions);
  EXPECT_EQ(right.code, 0) << right.out;
  const Outcome wrong = python(script + " " + functions + ":without_sink");
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  EXPECT_NE(wrong.out.find("lse            right"), std::string::npos) << wrong.out;
}

// Entries whose scores tie within the tolerance may stand in for each other, as in the program.
TEST_F(CasePythonTest, TiesAreRightAsTheProgramHasThem) {
  ASSERT_TRUE(has("numpy")) << "no numpy here: install python3-numpy";
  // Scores of 8 entries, of which 4 are taken: those of 3 and 4 tie in row 0, not in row 1.
  std::vector<float> logits = {9, 8, 7, 5, 5, 1, 0, 0, 9, 8, 7, 5, 4, 1, 0, 0};
  std::vector<std::int32_t> lens = {8, 8}, indices = {0, 1, 2, 3, 0, 1, 2, 3};
  as_indexer_topk_params p{};
  p.head = {sizeof(p), AS_PARAMS_VERSION};
  p.logits = make_tensor(logits.data(), {2, 8});
  p.lens = make_tensor(lens.data(), {2});
  p.indices = make_tensor(indices.data(), {2, 4});
  auto kept = keep_case(*find_case_op(AS_OP_INDEXER_TOPK), &p, {"by hand", "me"});
  ASSERT_TRUE(kept) << kept.error().text();
  ASSERT_TRUE(write_case(*kept, path("topk.json")));
  ASSERT_EQ(run({"case", "export", "--python", path("topk.json")}).code, 0);
  const auto judged = [&](const std::string& first, const std::string& second) {
    const std::string functions =
        write("topk_of_mine.py",
              "import numpy as np\ndef run(case):\n    return {'indices': "
              "np.array([[" +
                  first + "], [" + second + "]], dtype=np.int32)}\n");
    return python(path("topk.py") + " " + functions);
  };
  const Outcome tie = judged("0, 1, 2, 4", "0, 1, 2, 3");
  EXPECT_EQ(tie.code, 0) << tie.out;
  EXPECT_NE(tie.out.find("1 rows by a tie of scores"), std::string::npos) << tie.out;
  EXPECT_EQ(judged("3, 2, 1, 0", "0, 1, 2, 3").code, 0) << "any order";
  for (const auto& [row, text] : std::vector<std::pair<std::string, std::string>>{
           {"0, 1, 2, 4", "row 1: has [4] for [3], margin 1"},
           {"0, 1, 2, -1", "3 entries, 4 visible and wanted"},
           {"0, 1, 2, 2", "is selected twice"},
           {"0, 1, 2, 8", "is outside 0..7"},
           {"0, 1, -1, 2", "comes after a -1"}}) {
    const Outcome wrong = judged("0, 1, 2, 4", row);
    EXPECT_EQ(wrong.code, 1) << row << wrong.out;
    EXPECT_NE(wrong.out.find(text), std::string::npos) << row << wrong.out;
  }
}

// Every record is decoded: what the kept row before quantisation says, within its format's step.
TEST_F(CasePythonTest, RowsOfCachesAreDecoded) {
  ASSERT_TRUE(has("numpy")) << "no numpy here: install python3-numpy";
  for (const auto& [place, row, cache] :
       std::vector<std::array<std::string, 3>>{{"1/1/q_rope_kv_insert", "kv_row", "cache"},
                                               {"1/1/indexer_compress_insert", "row", "cache"}}) {
    const std::string script = exported(place, "insert");
    const std::string functions =
        write("decode.py", fmt::format(R"(import numpy as np
def run(case):
    slots = case['slots']
    kept = case['{row}'][slots >= 0]
    read = case.cache('{cache}').at(slots[slots >= 0])
    assert len(kept) > 0 and np.abs(kept).max() > 0.1
    error = np.abs(kept - read).max(axis=1)
    assert (error <= np.abs(kept).max(axis=1) / 14).all(), error
    return {{'{cache}': case.cache('{cache}').rows}}
)",
                                       fmt::arg("row", row), fmt::arg("cache", cache)));
    const Outcome out = python(fmt::format("{} {}", script, functions));
    EXPECT_EQ(out.code, 0) << out.out;
  }
}

}  // namespace case_python_test
}  // namespace attnscope
