#include "graph/read.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/temporary_directory.h"
#include "base/own_checksum.h"
#include "graph/write.h"
#include "sample_program.h"

namespace tesser::graph {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The text with one part of it, which must occur exactly once, replaced.
std::string changed(std::string text, std::string_view part, std::string_view replacement) {
  const std::size_t place = text.find(part);
  EXPECT_NE(place, std::string::npos) << "no such part: " << part;
  EXPECT_EQ(text.find(part, place + 1), std::string::npos) << "occurs again: " << part;
  return text.replace(place, part.size(), replacement);
}

std::string error_of(const std::string& text) {
  const Result<Program> program = parse_program(text, "x.json");
  if (program.has_value()) {
    return "";
  }
  EXPECT_EQ(program.error().code, ErrorCode::kInvalidInput);
  return program.error().message;
}

TEST(ReadTest, CanonicalTextsReadAndWriteBackToTheSameBytes) {
  for (const char* const name : {"step.json", "forward.json"}) {
    EXPECT_EQ(program_text(sample(name)), sample_text(name));
  }
}

TEST(ReadTest, AChangedDigitIsRefusedUnlessTheChecksumIsLeftOut) {
  const Program program = sample("step.json");
  const std::string whole = program_file_text(program);
  EXPECT_EQ(program_text(parse_program(whole, "x.json").value()), program_text(program));
  int digits = 0;
  for (std::size_t place = 0; place < whole.size(); ++place) {
    if (whole[place] < '0' || whole[place] > '9') {
      continue;
    }
    std::string other = whole;
    other[place] = other[place] == '9' ? '1' : static_cast<char>(other[place] + 1);
    EXPECT_NE(error_of(other), "") << place;
    ++digits;
  }
  EXPECT_GT(digits, 100);
  const std::string other = changed(whole, "\"first_step\":" + std::to_string(program.first_step),
                                    "\"first_step\":" + std::to_string(program.first_step + 1));
  EXPECT_THAT(error_of(other), testing::EndsWith("if by hand, delete the line \"checksum\""));
  EXPECT_EQ(parse_program(without_checksum(other), "x.json")->first_step, program.first_step + 1);
}

TEST(ReadTest, OtherLayoutsOfTheTextGiveTheSameProgram) {
  std::string text = sample_text("forward.json");
  for (std::size_t place = 0; (place = text.find(",\"", place)) != std::string::npos; place += 4) {
    text.replace(place, 2, " ,\n\"");
  }
  const std::string reordered = changed(text, R"("name":"t" ,)", "");
  EXPECT_EQ(
      program_text(
          parse_program(changed(reordered, R"("module":"head"},)", R"("module":"head","name":"t"},)"), "x").value()),
      sample_text("forward.json"));
}

TEST(ReadTest, KeepsEverything) {
  const Program program = sample("step.json");
  EXPECT_EQ(program.name, "sample \"\xc3\xa9\"");
  EXPECT_EQ(program.first_step, 5);
  ASSERT_EQ(program.schedules.size(), 6U);
  EXPECT_EQ(program.schedules[5].parts.size(), 2U);
  EXPECT_EQ(program.schedules[4].cosine_anneal, false);
  const Value& weight = program.value(program.find("conv.weight"));
  EXPECT_EQ(weight.aliases, std::vector<std::string>{"tied.weight"});
  EXPECT_TRUE(weight.trainable);
  const Value& momentum = program.value(program.find("conv.weight/momentum_buffer"));
  EXPECT_EQ(momentum.of, program.find("conv.weight"));
  EXPECT_TRUE(momentum.starts_as_zeros);
  EXPECT_FALSE(program.value(program.find("mask")).persistent);
  EXPECT_EQ(program.value(program.find("learning_rate/0")).schedule, 5);
  EXPECT_EQ(program.find("nothing"), kNone);

  const Node& index = program.node(2);
  EXPECT_EQ(index.module, "");
  EXPECT_EQ(program.node(3).module, std::nullopt);
  EXPECT_EQ(values_read(index), (std::vector<ValueId>{program.find("dropout"), program.find("labels")}));
  const Node& lists = program.node(5);
  EXPECT_EQ(std::get<std::string>(lists.args[0]), "mean");
  EXPECT_EQ(std::get<std::vector<bool>>(lists.args[1]), (std::vector<bool>{true, false}));
  EXPECT_EQ(std::get<Enumerator>(lists.args[3]), (Enumerator{"memory_format", "contiguous_format"}));
  EXPECT_EQ(std::get<std::int64_t>(lists.args[4]), -3);
  EXPECT_EQ(lists.timestep, 2);
  EXPECT_EQ(lists.recurrence, "lstm/0");
  EXPECT_TRUE(std::get<std::vector<std::int64_t>>(program.node(4).args[0]).empty());
  const Node& backward = program.node(9);
  EXPECT_EQ(backward.phase, Phase::kBackward);
  EXPECT_EQ(backward.forward, 0);
  EXPECT_EQ(backward.outputs, (std::vector<ValueId>{kNone, program.find("convolution_backward.1"), kNone}));
  EXPECT_EQ(program.value(backward.outputs[1]).output_index, 1);
  EXPECT_EQ(program.value(program.loss).name, "mean");
  EXPECT_EQ(program.metrics.size(), 2U);
  EXPECT_EQ(program.state_outputs.size(), 3U);
}

TEST(ReadTest, RefusesMalformedPrograms) {
  struct Case {
    const char* part;
    const char* replacement;
    const char* message;
  };
  const Case kCases[] = {
      // top level
      {R"("format":"tesser.program")", R"("format":"tesser.plan")",
       R"('format' is "tesser.plan", expected "tesser.program")"},
      {"\"format\":\"tesser.program\",\n", "", "key 'format' is missing"},
      {R"("version":1)", R"("version":2)",
       "'version' is 2, this tesser reads version 1; capture the program again with this version"},
      {R"("version":1)", R"("version":"1")", "'version' is not an integer"},
      {R"("version":1)", R"("version":1,"extra":0)", "unknown key \"extra\""},
      {R"("name":"sample \"é\"")", R"("name":"")", "'name' is empty"},
      {R"("name":"sample \"é\"")", R"("name":7)", "'name' is not a string"},
      {"\"kind\":\"step\",\n", "\"kind\":\"run\",\n", "unknown kind \"run\""},
      {R"("first_step":5)", R"("first_step":-1)", "'first_step' is -1, expected 0 or more"},
      {R"("first_step":5)", R"("first_step":5.0)", "'first_step' is not an integer"},
      // schedules
      {R"({"kind":"constant","rate":0.1},)", R"({"kind":"steady","rate":0.1},)",
       "schedules[0]: unknown kind \"steady\""},
      {R"({"kind":"constant","rate":0.1},)", R"({"kind":"constant"},)", "schedules[0]: key 'rate' is missing"},
      {R"({"kind":"constant","rate":0.1},)", R"({"kind":"constant","rate":0.1,"every":1},)",
       "schedules[0]: unknown key \"every\""},
      {R"({"kind":"constant","rate":0.1},)", R"({"kind":"constant","rate":"0.1"},)",
       "schedules[0]: 'rate' is not a number"},
      {R"("every":30)", R"("every":0)", "schedules[1]: 'every' is 0, expected 1 or more"},
      {R"("steps":1000)", R"("steps":0)", "schedules[3]: 'steps' is 0, expected 1 or more"},
      {R"("rise":0.3)", R"("rise":1.3)", "schedules[4]: 'rise' is not between 0 and 1"},
      {R"("anneal":"linear")", R"("anneal":"none")", "schedules[4]: unknown anneal \"none\""},
      {R"("milestones":[10])", R"("milestones":[10,20])",
       "schedules[5]: a sequence of 2 parts has 2 milestones, expected one less than parts"},
      {R"("milestones":[10])", R"("milestones":[-10])", "schedules[5]: milestones are negative or fall"},
      {R"("milestones":[10])", R"("milestones":[0.5])",
       "schedules[5]: 'milestones' holds something other than integers"},
      {R"("parts":[{"kind":"linear")", R"("parts":[{"kind":"lines")", "schedules[5].parts[0]: unknown kind \"lines\""},
      // inputs
      {R"("role":"seed")", R"("role":"salt")", "input seed: unknown role \"salt\""},
      {R"("role":"seed")", R"("role":"intermediate")", "input seed: unknown role \"intermediate\""},
      {R"("role":"seed")", R"("role":"step")", "input seed: is a second input of role step"},
      {R"("role":"seed","dtype":"int64")", R"("role":"seed","dtype":"int32")",
       "input seed: is int32[], but role seed is int64[]"},
      {R"("role":"step","dtype":"int64","shape":[])", R"("role":"step","dtype":"int64","shape":[1])",
       "input step: is int64[1], but role step is int64[]"},
      {R"("role":"learning_rate","dtype":"float64")", R"("role":"learning_rate","dtype":"float32")",
       "input learning_rate/0: is float32[], but role learning_rate is float64[]"},
      {R"("schedule":5)", R"("schedule":6)", "input learning_rate/0: 'schedule' is 6, but there are 6 schedules"},
      {R"("schedule":5)", R"("schedule":-1)", "input learning_rate/0: 'schedule' is not a number from 0 on"},
      {R"("name":"constant/0","role":"constant","dtype":"float32")",
       R"("name":"constant/0","role":"constant","dtype":"complex64")", "input constant/0: unknown dtype \"complex64\""},
      {R"("shape":[3]})", R"("shape":[-3]})", "input constant/0: shape [-3] has a negative dimension"},
      {R"("shape":[3]})", R"("shape":[4294967296,4294967296]})",
       "input constant/0: shape [4294967296, 4294967296] is too large"},
      {R"("shape":[3]})", R"("shape":[0,4294967296,4294967296]})",
       "input constant/0: shape [0, 4294967296, 4294967296] is too large"},
      {R"("shape":[3]})", R"("shape":[3.0]})", "input constant/0: a shape holds something other than integers"},
      {R"("shape":[3]})", R"("shape":3})", "input constant/0: a shape is not an array"},
      {R"("shape":[3]})", R"("shape":[3],"trainable":true})", "input constant/0: unknown key \"trainable\""},
      {R"("name":"constant/0")", R"("name":"seed")", "input seed: the value name \"seed\" is used twice"},
      {R"("name":"constant/0")", R"("name":"")", "inputs[11]: 'name' is empty"},
      {R"("name":"constant/0")", R"("name":"a\u001b[31m")", "inputs[11]: 'name' holds a control character"},
      {R"("name":"constant/0")", R"("name":"__metadata__")",
       "input __metadata__: the name is reserved in state.safetensors"},
      {R"("trainable":false)", R"("trainable":0)", "input head.weight: 'trainable' is neither true nor false"},
      {R"("head.weight","role":"parameter","dtype":"float32","shape":[10,8],"trainable":false)",
       R"("head.weight","role":"parameter","dtype":"int8","shape":[10,8],"trainable":true)",
       "input head.weight: is trainable, but of type int8"},
      {R"("aliases":["tied.weight"])", R"("aliases":["head.weight"])",
       "input conv.weight: the alias head.weight is the name of another parameter or buffer"},
      {R"("aliases":["tied.weight"])", R"("aliases":["a","a"])",
       "input conv.weight: the alias a is the name of another parameter or buffer"},
      {R"("aliases":["tied.weight"])", R"("aliases":[1])",
       "input conv.weight: 'aliases' holds something other than names"},
      {R"("of":"conv.weight","slot":"other")", R"("of":"labels","slot":"other")",
       "input conv.weight/other: 'of' is \"labels\", which is no parameter"},
      {R"("of":"conv.weight","slot":"other")", R"("of":"conv.weight","slot":"momentum_buffer")",
       "input conv.weight/other: is a second slot momentum_buffer of conv.weight"},
      {R"("initial":"zeros")", R"("initial":"ones")",
       "input conv.weight/momentum_buffer: 'initial' is something other than \"zeros\""},
      {R"("persistent":true)", R"("persistent":null)", "input steps_seen: 'persistent' is neither true nor false"},
      // nodes
      {R"({"name":"mean","op")", R"({"name":"sgd","op")", "node sgd: the node name \"sgd\" is used twice"},
      {R"([["mean","float32",[]]])", R"([["clamp","float32",[]]])",
       "node mean: the value name \"clamp\" is used twice"},
      {R"("args":["%split.0"])", R"("args":["%sgd.0"])",
       "node mean: reads \"%sgd.0\", which no input or earlier node defines"},
      {R"("args":["%split.0"])", R"("args":["%mean"])",
       "node mean: reads \"%mean\", which no input or earlier node defines"},
      {R"("args":["%split.0"])", R"("args":["%"])", "node mean: reads \"%\", which no input or earlier node defines"},
      {R"("args":["%split.0"])", R"("args":[["%split.0",1]])", "node mean: an argument is a list of several kinds"},
      {R"("args":["%split.0"])", R"("args":[[1,0.5]])", "node mean: an argument is a list of several kinds"},
      {R"("args":["%split.0"])", R"("args":[[[1]]])", "node mean: an argument is a list of lists"},
      {R"("args":["%split.0"])", R"("args":[["a"]])",
       "node mean: an argument is a list of something other than values, integers, floats or booleans"},
      {R"("args":["%split.0"])", R"("args":[{"color":"red"}])",
       "node mean: an argument is of the unknown kind \"color\""},
      {R"("args":["%split.0"])", R"("args":[{}])",
       "node mean: an argument is an object with something other than one string"},
      {R"("args":["%split.0"])", R"("args":[{"float":"1"}])",
       "node mean: an argument is the float \"1\", expected inf, -inf or nan"},
      {R"("args":["%split.0"])", R"("args":[{"dtype":"qint8"}])",
       "node mean: argument 0 is dtype qint8, which does not exist"},
      {R"("args":["%split.0"])", R"("args":{})", "node mean: 'args' is not an array"},
      {R"("op":"aten::mean")", R"("op":"prims::mean")",
       "node mean: operator prims::mean is not of the form aten::NAME[.OVERLOAD] or tesser::NAME[.OVERLOAD]"},
      {R"("op":"aten::mean")", R"("op":"aten::mean.a.b")",
       "node mean: operator aten::mean.a.b is not of the form aten::NAME[.OVERLOAD] or tesser::NAME[.OVERLOAD]"},
      {R"("phase":"clip")", R"("phase":"cut")", "node clip: unknown phase \"cut\""},
      {R"("phase":"clip")", R"("phase":"clip","forward":"mean")",
       "node clip: names a forward node, but is of phase clip"},
      {R"("forward":"convolution")", R"("forward":"sgd")",
       "node convolution_backward: 'forward' is \"sgd\", which no earlier node is called"},
      {R"("timestep":2)", R"("timestep":-2)", "node lists: 'timestep' is not a number from 0 on"},
      {R"(,"timestep":2)", "", "node lists: has only one of 'recurrence' and 'timestep'"},
      {R"("micro_batch":0)", R"("micro_batch":"0")", "node dropout: 'micro_batch' is not a number from 0 on"},
      {R"("args":["%labels"],"out":[["unread","float32",[]]])", R"("args":["%labels"],"out":[])",
       "node unread: has no result"},
      {R"("args":["%labels"],"out":[["unread","float32",[]]])", R"("args":["%labels"],"out":[null,null])",
       "node unread: has no result"},
      {R"([["mean","float32",[]]])", R"([["mean","float32"]])",
       "node mean: 'out' holds something other than null and [name, dtype, shape]"},
      {R"([["mean","float32",[]]])", R"([["mean","float",[]]])", "node mean: unknown dtype \"float\""},
      {R"([["mean","float32",[]]])", R"([["mean","float32",[9223372036854775807]]])",
       "node mean: result mean: shape [9223372036854775807] is too large"},
      {R"([["mean","float32",[]]])", R"([["mean","float32",[1152921504606846975]]])",
       "value mean: all values up to it need more than 4611686018427387904 bytes"},
      // outputs
      {"{\"role\":\"loss\",\"value\":\"%mean\"},\n", "", "there is no output of role loss"},
      {R"({"role":"loss","value":"%mean"})", R"({"role":"loss","value":"%mean"},{"role":"loss","value":"%mean"})",
       "outputs[1]: is a second loss; a step has exactly one"},
      {R"({"role":"loss","value":"%mean"})", R"({"role":"loss","value":"%clip"})",
       "output loss: clip is float32[8, 1, 3, 3], expected a floating scalar"},
      {R"({"role":"loss","value":"%mean"})", R"({"role":"loss","value":"%step"})",
       "output loss: step is int64[], expected a floating scalar"},
      {R"({"role":"loss","value":"%mean"})", R"({"role":"loss","value":"mean"})",
       "outputs[0]: 'value' is \"mean\", expected % and the name of a value"},
      {R"({"role":"loss","value":"%mean"})", R"({"role":"loss","value":"%means"})",
       "outputs[0]: 'value' is \"%means\", which no input or node defines"},
      {R"("role":"metric","name":"accuracy","value":"%lists")", R"("role":"metric","name":"accuracy","value":"%clip")",
       "output metric accuracy: is float32[8, 1, 3, 3], expected a scalar"},
      {R"("role":"metric","name":"accuracy")", R"("role":"metric","name":"steps")",
       "output metric steps: the name is used twice"},
      {R"("role":"metric","name":"accuracy")", R"("role":"gain","name":"accuracy")",
       "outputs[1]: unknown role \"gain\""},
      {R"("role":"metric","name":"accuracy")", R"("role":"result","name":"accuracy")",
       "output result accuracy: only forward programs have results"},
      {R"("role":"state","name":"conv.weight",)", R"("role":"state","name":"head.weight",)",
       "output state head.weight: its new value sgd.0 is float32[8, 1, 3, 3], but the state value is float32[10, 8]"},
      {R"("role":"state","name":"conv.weight",)", R"("role":"state","name":"conv.weight/momentum_buffer",)",
       "output state conv.weight/momentum_buffer: is given twice"},
      {R"("role":"state","name":"conv.weight",)", R"("role":"state","name":"labels",)",
       "output state labels: names no state value"},
      {R"("role":"state","name":"conv.weight",)", R"("role":"state","name":"conv",)",
       "outputs[3]: 'name' is \"conv\", which is no state value"},
  };
  const std::string text = sample_text("step.json");
  for (const Case& one : kCases) {
    EXPECT_EQ(error_of(changed(text, one.part, one.replacement)), std::string("x.json: ") + one.message);
  }
}

TEST(ReadTest, RefusesMalformedForwardPrograms) {
  const std::string text = sample_text("forward.json");
  const std::string results = R"({"role":"result","name":"logits","value":"%mm"},
{"role":"result","name":"features","value":"%features"})";
  EXPECT_EQ(error_of(changed(text, R"("first_step":0)", R"("first_step":1)")),
            "x.json: a forward program has first_step 0 and no schedules");
  EXPECT_EQ(error_of(changed(text, results, "")), "x.json: a forward program needs an output of role result");
  EXPECT_EQ(error_of(changed(text, R"("role":"result","name":"logits")", R"("role":"metric","name":"logits")")),
            "x.json: a forward program has outputs of role result only");
  EXPECT_EQ(error_of(changed(text, R"([["mm","float32",[4,10]]],"phase":"forward")",
                             R"([["mm","float32",[4,10]]],"phase":"update")")),
            "x.json: node mm: is of phase update in a forward program");
}

// Cut anywhere, a program is an error and nothing worse.
TEST(ReadTest, RefusesTruncatedPrograms) {
  const std::string text = sample_text("step.json");
  for (std::size_t size = 0; size + 2 < text.size(); size += 7) {
    EXPECT_THAT(error_of(text.substr(0, size)), StartsWith("x.json: line ")) << size;
  }
}

TEST(ReadTest, RefusesHostileTexts) {
  EXPECT_EQ(error_of(std::string(3'000'000, '[')), "x.json: [0][0][0][0]: nested deeper than 64 levels");
  EXPECT_EQ(error_of("[]"), "x.json: is not a JSON object");
  EXPECT_EQ(error_of("null"), "x.json: is not a JSON object");
  EXPECT_THAT(error_of(changed(sample_text("step.json"), R"("version":1)", R"("version":1,"version":1)")),
              HasSubstr("key \"version\" occurs twice"));
  // Sequences in sequences, within the depth of the text.
  std::string schedule = R"({"kind":"constant","rate":0.1})";
  for (int level = 0; level < 20; ++level) {
    schedule = R"({"kind":"sequence","parts":[)" + schedule + R"(],"milestones":[]})";
  }
  EXPECT_EQ(error_of(changed(sample_text("step.json"), R"({"kind":"constant","rate":0.1},)", schedule + ",")),
            "x.json: schedules[0]: sequences are nested deeper than 16 levels");
  const std::string long_name(1'000'000, 'x');
  EXPECT_LT(
      error_of(changed(sample_text("step.json"), R"("name":"sample \"é\"")", R"("name":")" + long_name + R"(\u0000")"))
          .size(),
      300U);
  EXPECT_LT(error_of(changed(sample_text("step.json"), R"("%split.0"])", "\"%" + long_name + "\"]")).size(), 300U);
}

TEST(ReadTest, ChoosesTheFileOfADirectory) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_program(sample("step.json"), directory / "program.json").has_value());
  ASSERT_TRUE(write_program(sample("forward.json"), directory / "forward.json").has_value());
  EXPECT_EQ(read_program(directory.path()).value().kind, Kind::kStep);
  EXPECT_EQ(read_program(directory.path(), "forward").value().kind, Kind::kForward);
  EXPECT_EQ(read_program(directory / "forward.json").value().kind, Kind::kForward);
  EXPECT_EQ(read_file(directory / "program.json").value(), with_checksum(sample_text("step.json")));

  const Result<Program> missing = read_program(directory / "none.tesser");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, (directory / "none.tesser").string() + ": no such file");
  std::filesystem::remove(directory / "forward.json");
  EXPECT_EQ(read_program(directory.path(), "forward").error().message,
            (directory / "forward.json").string() + ": no such file");
}

TEST(ReadTest, ReadsLargeProgramsQuickly) {
  Program program = sample("forward.json");
  program.results = {{"last", 0}};
  for (int layer = 0; layer < 15'000; ++layer) {
    const auto id = static_cast<ValueId>(program.values.size());
    Node node = program.nodes[1];
    node.name = "mm_" + std::to_string(layer);
    node.op = "aten::relu";
    node.args = {ValueRef{id - 1}};
    node.outputs = {id};
    Value value = program.values[static_cast<std::size_t>(id) - 1];
    value.name = node.name;
    value.producer = static_cast<NodeId>(program.nodes.size());
    program.nodes.push_back(node);
    program.values.push_back(value);
  }
  const std::string text = program_text(program);
  const auto begin = std::chrono::steady_clock::now();
  const Result<Program> read = parse_program(text, "x.json");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(program_text(*read), text);
  EXPECT_LT(seconds.count(), 10.0);  // some 0.1 s; generous for sanitizers and busy machines, far below quadratic time
}

}  // namespace
}  // namespace tesser::graph
