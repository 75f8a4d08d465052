// Captures of a model with chunks: they are read again, and calls of its ops are made out of them.
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace chunk_capture_test {

using ChunkCapture = CliTest;

TEST_F(ChunkCapture, IsReadAgainAndItsCallsAreRight) {
  const std::string capture = path("chunks.acap");
  const Outcome recorded =
      run({"record", "tiny-llama4", "--steps", "3", "--level", "full", "-o", capture});
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  const Outcome shown = run({"show", capture});
  EXPECT_EQ(shown.code, 0) << shown.err;
  for (const char* at : {"1/1/paged_attention", "2/-/local_batch", "1/3/rope_kv_insert"}) {
    SCOPED_TRACE(at);
    const std::string kept = path("call.json");
    const Outcome saved = run({"case", "save", capture, "--at", at, "-o", kept, "--force"});
    ASSERT_EQ(saved.code, 0) << saved.err;
    const Outcome ran = run({"case", "run", kept});
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  }
}

}  // namespace chunk_capture_test
}  // namespace attnscope
