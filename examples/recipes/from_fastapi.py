"""A FastAPI application whose operations are tools, and whose reading ones are resources too."""

from __future__ import annotations

import asyncio

import fastapi
from pydantic import BaseModel

from ferrule import Client, OpenApiRule, Server

api = fastapi.FastAPI(title="Shop")


class Product(BaseModel):
    """Something to sell."""

    name: str
    price: float


PRODUCTS = {1: Product(name="chair", price=49.0)}


@api.get("/products/{number}")
def product(number: int) -> Product:
    """One product."""
    if number not in PRODUCTS:
        raise fastapi.HTTPException(404, f"there is no product {number}")
    return PRODUCTS[number]


@api.post("/products", status_code=201)
def add_product(new: Product) -> int:
    """Add a product; gives its number."""
    PRODUCTS[len(PRODUCTS) + 1] = new
    return len(PRODUCTS)


tools = Server.from_fastapi(api)
resources = Server.from_fastapi(api, rules=[OpenApiRule("resource", methods=["GET"])])


async def main() -> None:
    """Call the application through MCP."""
    async with Client(tools) as client:
        print([tool.name for tool in await client.list_tools()])
        print((await client.call_tool("add_product", {"name": "table", "price": 120})).data)
        print((await client.call_tool("product", {"number": 2})).data)
        missing = await client.call_tool("product", {"number": 9}, raise_on_error=False)
        print(missing.text)
    async with Client(resources) as client:
        print((await client.read_resource("api://product/1")).text)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['product', 'add_product']
# 2
# {'name': 'table', 'price': 120.0}
# GET /products/{number} answered 404 Not Found: {"detail":"there is no product 9"}
# {"name":"chair","price":49.0}
