// The recipe format: what it says, and that a misspelt one is never ignored.
#include "convert/checkpoint/recipe.h"

#include "convert/checkpoint/pattern.h"
#include "files.h"

namespace rmsnorm::convert::checkpoint {
namespace {

Json minimal() {
  return Json::parse(R"({"recipe": 1, "family": "tiny", "width": "n_embd", "epsilon": 1e-5, "counts": {"i": "n_layer"},
    "streams": [{"name": "s", "entry": {"writers": ["wte"]}, "sites": [{"norm": "h.{i}.ln", "readers": ["h.{i}.fc"]}],
                 "writers": ["h.{i}.{a,b}"]}]})");
}

void expect_error(const Json& json, const std::string& text) {
  try {
    parse_recipe(json.dump(), "tiny.json");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const tools::ToolError& error) {
    EXPECT_EQ(error.code(), tools::ExitCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(Recipe, lists_in_names_are_several_modules) {
  const Recipe recipe = parse_recipe(minimal().dump(), "tiny.json");
  ASSERT_EQ(recipe.streams.size(), 1u);
  ASSERT_EQ(recipe.streams[0].writers.size(), 2u);
  EXPECT_EQ(recipe.streams[0].writers[1].weight, "h.{i}.b.weight");
  EXPECT_EQ(recipe.streams[0].entry[0].layout, Layout::kTable);
  EXPECT_EQ(recipe.streams[0].sites[0].readers[0].bias, "h.{i}.fc.bias");
}

TEST(Recipe, every_built_in_recipe_can_be_read) {
  EXPECT_GE(built_in_recipes().size(), 1u);
  for (const RecipeText& text : built_in_recipes()) {
    const Recipe recipe = parse_recipe(text.text, std::string(text.name));
    EXPECT_FALSE(recipe.family.empty()) << text.name;
    EXPECT_FALSE(recipe.model_types.empty()) << text.name;
  }
}

TEST(Recipe, errors_name_the_key_and_the_rule) {
  const auto with = [](auto change) {
    Json json = minimal();
    change(json);
    return json;
  };
  expect_error(with([](Json& j) { j["famly"] = "x"; }), "tiny.json has the key 'famly'; it must be one of");
  expect_error(with([](Json& j) { j["recipe"] = 2; }),
               "tiny.json.recipe is '2'; it must be a whole number from 1 to 1");
  expect_error(with([](Json& j) { j.erase("family"); }), "tiny.json.family is missing");
  expect_error(with([](Json& j) { j["layout"] = "liner"; }), "it must be one of linear, conv1d, conv, table");
  expect_error(with([](Json& j) { j["epsilon"] = 2; }), "tiny.json.epsilon is '2'");
  expect_error(with([](Json& j) { j["counts"]["ii"] = 3; }), "has the key 'ii'; it must be one letter");
  expect_error(with([](Json& j) { j["streams"][0]["writers"][0] = "a.{b"; }), "its braces must be");
  const Json tabulate = {{"table", "wte"}, {"norm", "ln"}};
  expect_error(with([&](Json& j) { j["streams"][0]["entry"]["tabulate"] = tabulate; }), "it must have only_op, too");
  expect_error(with([](Json& j) {
                 j["streams"][0]["writers"][0] = Json{{"modul", "a"}};
               }),
               "tiny.json.streams[0].writers[0] must have one of the keys module and tensor");
  expect_error(with([](Json& j) {
                 j["streams"][0]["writers"][0] = Json{{"module", "a"}, {"bais", "x"}};
               }),
               "has the key 'bais'");
  expect_error(with([](Json& j) { j["streams"][0]["entry"] = Json::object(); }),
               "has no writers; only_op must then say");
  expect_error(with([](Json& j) { j["streams"][0]["sites"][0]["when"] = 3; }), "when is '3'; it must be an object");
  expect_error(with([](Json& j) { j["streams"][0]["sites"][0]["exposed_by"] = "mtp.*"; }),
               "has exposed_by and no exposed; that must say why");
  expect_error(with([](Json& j) { j["refuse"] = {{{"code", "R99"}, {"site", "x"}, {"text", "y"}}}; }), "R01 to R14");
  expect_error(with([](Json& j) { j["warn"] = {{{"text", "y"}}}; }), "one of the keys when and always");
  expect_error(with([](Json& j) {
                 j["renames"] = std::vector<Json>(33, {"h", "hh"});
               }),
               "tiny.json.renames has 33 elements; it must have at most 32");
  expect_error(with([](Json& j) { j["prefixes"] = std::vector<Json>(33, "a."); }),
               "tiny.json.prefixes has 33 elements; it must have at most 32");
  expect_error(with([](Json& j) { j["streams"][0]["writers"] = "a"; }), "writers is '\"a\"'; it must be a list");
}

TEST(Recipe, errors_of_targets) {
  const auto expect = [](const char* target, const std::string& text) {
    Json json = minimal();
    json["targets"] = {{"timm", Json::parse(target)}};
    expect_error(json, text);
  };
  expect(R"({"tensors": [{"of": ["a"]}]})", "must have one of the keys module and tensor");
  expect(R"({"tensors": [{"module": "a", "of": []}]})", "of is missing");
  expect(R"({"tensors": [{"module": "a", "of": [{"zeros": 2}]}]})", "only a tensor can be made of it");
  expect(R"({"tensors": [{"tensor": "a", "of": [{"zeros": 2, "name": "b"}]}]})",
         "must have one of the keys name, zeros and identity");
  expect(R"({"tensors": [{"tensor": "a", "of": [{"name": "b", "from": 2, "to": 2}]}]})", "it must be at least one");
  expect(R"({"tensors": [{"tensor": "a", "of": ["b.{i}"]}]})", "has the index i; 'a' must have it, too");
  expect(R"({"tensors": [{"tensor": "a", "of": [{"zeros": 2}]}]})", "zeros must stand beside a tensor");
  expect(R"({"tensors": [{"tensor": "a", "of": ["b", {"identity": 2}]}]})", "an identity matrix beside others");
  expect(R"({"affine": "none"})", "it must be one of keep, bias, full");
  expect(R"({"config": [{"set": {"a": {"kee": "b"}}}]})", "has the key 'kee'");
  expect(R"({"config": [{"set": {"a": {"file": "../b", "key": "c"}}}]})", "it must be a plain name");
  expect(R"({"config": [{"set": {"a": {"ratio": [1]}}}]})", "must be a list of two values");
}

TEST(Recipe, text_that_is_no_json_or_too_deep_is_refused) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{{"{", "must be valid JSON"},
                                                        {R"({"recipe": 1, "recipe": 1})", "'recipe' is given twice"},
                                                        {deep, "nested more than 24 levels deep"},
                                                        {std::string(kMaxRecipeBytes + 1, ' '), "it must have at most"},
                                                        {"[]", "it must be an object"}}) {
    try {
      parse_recipe(text, "tiny.json");
      ADD_FAILURE() << part;
    } catch (const tools::ToolError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Recipe, conditions) {
  const Json config = Json::parse(R"({"a": 1, "n": {"b": true}, "architectures": ["X", "Y"], "z": null})");
  const Json defaults = Json::parse(R"({"d": 4, "copy": {"key": "a"}, "a": 7})");
  const Config values(config, defaults);
  const auto meets = [&](const char* text) { return holds(Json::parse(text), values); };
  EXPECT_TRUE(meets(R"({"a": 1, "n.b": true, "d": 4, "copy": 1})"));
  EXPECT_FALSE(meets(R"({"a": 7})"));
  EXPECT_TRUE(meets(R"({"a": [7, 1]})"));
  EXPECT_TRUE(meets(R"({"architectures": "Y"})"));
  EXPECT_FALSE(meets(R"({"architectures": ["Z"]})"));
  EXPECT_TRUE(meets(R"({"z": null, "missing": null})"));
  EXPECT_TRUE(meets(R"({"a": {"present": true}, "d": {"present": false}, "z": {"present": false}})"));
  EXPECT_TRUE(meets(R"({"a": {"key": "copy"}})"));
  EXPECT_TRUE(meets(R"({"any": [{"a": 2}, {"a": 1}], "not": {"a": 2}, "all": [{"a": 1}, {"d": 4}]})"));
  EXPECT_FALSE(meets(R"({"any": [{"a": 2}, {"a": 3}]})"));
  EXPECT_TRUE(meets(R"({"missing|a": 1})"));
}

TEST(Pattern, fills_expands_and_matches) {
  EXPECT_EQ(expand_lists("a.{q,k}.{i}"), (std::vector<std::string>{"a.q.{i}", "a.k.{i}"}));
  EXPECT_TRUE(expand_lists("a.{q").empty());
  EXPECT_TRUE(expand_lists("a}").empty());
  EXPECT_TRUE(expand_lists("{0,1,2,3,4,5,6,7,8,9}{0,1,2,3,4,5,6,7,8,9}{0,1,2,3}").empty());  // 400 names
  EXPECT_EQ(fill("h.{i}.{j}.{i}", {{'i', 3}, {'j', 12}}), "h.3.12.3");
  EXPECT_EQ(index_letters("h.{i}.{j}.{i}"), "ij");
  EXPECT_TRUE(matches("h.{i}.attn.bias", "h.11.attn.bias"));
  EXPECT_FALSE(matches("h.{i}.attn.bias", "h.x.attn.bias"));
  EXPECT_FALSE(matches("h.{i}.attn.bias", "h.1.attn.bias2"));
  EXPECT_TRUE(matches("*.inv_freq", "a.b.inv_freq"));
  EXPECT_TRUE(matches("a.*.c.*", "a.b.c.d.c.e"));
  EXPECT_FALSE(matches("a.*.z", "a.b.c"));
  EXPECT_TRUE(matches("*", ""));
}

}  // namespace
}  // namespace rmsnorm::convert::checkpoint
